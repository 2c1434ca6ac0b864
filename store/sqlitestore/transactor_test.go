package sqlitestore_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// opened begins a transaction of the store with a claim, and writes an effect.
func opened(t *testing.T, s *sqlitestore.Store) (*sql.Tx, store.Fenced) {
	t.Helper()
	p := unminted()
	tx, standing, err := s.Begin(t.Context(), store.Opening{ID: p.ID, Claim: &p})
	require.NoError(t, err)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('effect')`)
	require.NoError(t, err)
	return tx, store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: standing.Claim.Fence}
}

func completing(f store.Fenced) store.Closing {
	return store.Closing{Complete: &store.CompleteParams{Fenced: f, Outcomes: []byte("done")}}
}

// endings are the ways in which an executor can end the transaction that it was lent.
var endings = []string{
	"COMMIT", "ROLLBACK", "ROLLBACK; BEGIN IMMEDIATE", "COMMIT; BEGIN IMMEDIATE", "COMMIT; INSERT INTO effect VALUES ('effect')",
	"ROLLBACK; INSERT INTO effect VALUES ('effect')", "INSERT OR ROLLBACK INTO effect VALUES (NULL)", "RELEASE confirmexec_begun",
}

// S28a: Commit records nothing in a transaction that an executor ended, and nothing of it is committed.
func TestCommitNoticesATransactionThatWasEnded(t *testing.T) {
	for _, end := range endings {
		t.Run(end, func(t *testing.T) {
			s := withTable(t, time.Second)
			tx, f := opened(t, s)
			_, _ = tx.ExecContext(t.Context(), end)
			_, _ = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('effect')`)
			err := s.Commit(t.Context(), tx, completing(f))
			require.ErrorIs(t, err, store.ErrTxEnded)
			require.NotErrorIs(t, err, store.ErrNotCommitted)
			require.Equal(t, 0, count(t, s, "effect"))
			require.ErrorIs(t, s.Commit(t.Context(), tx, store.Closing{}), store.ErrTxEnded)
			require.ErrorIs(t, s.Rollback(t.Context(), tx), store.ErrTxEnded)
			standing, err := s.Own().Lookup(t.Context(), store.LookupParams{ID: f.ID, Barrier: true})
			require.NoError(t, err)
			require.False(t, standing.Claim != nil && standing.Claim.Completed)
		})
	}
}

// S28a: whatever an executor has ended is undone when Rollback says so.
func TestRollbackOfATransactionThatWasEnded(t *testing.T) {
	for _, end := range append(endings, "SELECT 1") {
		t.Run(end, func(t *testing.T) {
			s := withTable(t, time.Second)
			tx, _ := opened(t, s)
			_, _ = tx.ExecContext(t.Context(), end)
			_, _ = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('effect')`)
			require.NoError(t, s.Rollback(t.Context(), tx))
			require.Equal(t, 0, count(t, s, "effect"))
			require.ErrorIs(t, s.Rollback(t.Context(), tx), store.ErrTxEnded)
			_, err := s.Own().Claim(t.Context(), unminted())
			require.NoError(t, err, "the connection is still usable")
		})
	}
}

// S28a: whoever waits for the writer in vain ends nobody's loan: the executor that has it commits nothing, and makes nothing unknown.
func TestAWaiterThatGivesUpEndsNobodysLoan(t *testing.T) {
	for _, end := range endings {
		s := withTable(t, 50*time.Millisecond)
		tx, _ := opened(t, s)
		p := unminted()
		_, _, err := s.Begin(t.Context(), store.Opening{ID: p.ID, Claim: &p})
		require.ErrorIs(t, err, store.ErrBusy)
		_, err = s.Own().Claim(t.Context(), p)
		require.ErrorIs(t, err, store.ErrBusy)
		_, _ = tx.ExecContext(t.Context(), end)
		_, _ = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('effect')`)
		require.NoError(t, s.Rollback(t.Context(), tx), end)
		require.Equal(t, 0, count(t, s, "effect"), end)
	}
}

// A loan that an executor has ended by its handle refuses nobody else who takes the connection, through the store or not.
func TestALoanRefusesNobodyElse(t *testing.T) {
	for name, end := range map[string]func(*sql.Tx){
		"commit": func(tx *sql.Tx) { _ = tx.Commit() }, "rollback": func(tx *sql.Tx) { _ = tx.Rollback() },
	} {
		s := withTable(t, time.Second)
		lent, _ := opened(t, s)
		end(lent)
		_, err := s.DB().ExecContext(t.Context(), `INSERT INTO effect VALUES ('bystander')`)
		require.NoError(t, err, name)
		tx := begin(t, s)
		_, err = s.Isolate(t.Context(), tx, 1, func(_ int, tx *sql.Tx) error {
			_, err := tx.ExecContext(t.Context(), "COMMIT")
			require.Error(t, err, "a loan of its own")
			return nil
		})
		require.ErrorIs(t, err, store.ErrTxEnded, name)
		_ = tx.Rollback()
		require.ErrorIs(t, s.Rollback(t.Context(), lent), store.ErrTxEnded, name)
		require.Equal(t, 1, count(t, s, "effect"), name)
	}
}

// A loan ends with its transaction: what others write on the connection after a handle's own commit was refused is committed.
func TestALoanEndsWithItsTransaction(t *testing.T) {
	s := withTable(t, time.Second)
	tx, _ := opened(t, s)
	require.Error(t, tx.Commit())
	_, err := s.Own().Claim(t.Context(), unminted())
	require.NoError(t, err)
	next, _ := opened(t, s)
	require.ErrorIs(t, s.Rollback(t.Context(), tx), store.ErrTxEnded)
	require.Error(t, next.Commit(), "the next loan stands")
	require.Equal(t, 0, count(t, s, "effect"))
}

// S28a: SQLite keeps a transaction open whose COMMIT it refuses; then it is known that nothing was committed.
func TestARefusedCommitIsNotCommitted(t *testing.T) {
	s := withTable(t, time.Second)
	_, err := s.DB().ExecContext(t.Context(), `
		CREATE TABLE child (parent TEXT REFERENCES parent DEFERRABLE INITIALLY DEFERRED);
		CREATE TABLE parent (name TEXT PRIMARY KEY)`)
	require.NoError(t, err)
	tx, f := opened(t, s)
	_, err = tx.ExecContext(t.Context(), `INSERT INTO child VALUES ('nobody')`)
	require.NoError(t, err)
	err = s.Commit(t.Context(), tx, completing(f))
	require.EqualError(t, err, "sqlitestore: commit: the transaction was rolled back (SQLITE_CONSTRAINT 787)")
	require.ErrorIs(t, err, store.ErrNotCommitted)
	require.Equal(t, 0, count(t, s, "effect"))
	_, err = s.Own().Claim(t.Context(), unminted())
	require.NoError(t, err, "the connection is still usable")
}

// S28a: an error of what is written with the commit, here of a full file, is one before it.
func TestARecordThatCannotBeWrittenIsNotCommitted(t *testing.T) {
	s := withTable(t, time.Second)
	tx, f := opened(t, s)
	_, err := tx.ExecContext(t.Context(), `PRAGMA max_page_count = 1`) // as many as there are
	require.NoError(t, err)
	c := completing(f)
	c.Complete.Outcomes = make([]byte, 1<<20)
	err = s.Commit(t.Context(), tx, c)
	require.ErrorIs(t, err, store.ErrNotCommitted)
	require.ErrorContains(t, err, "SQLITE_FULL")
	require.Equal(t, 0, count(t, s, "effect"))
}

// The rows of a RETURNING are in the way of the record.
func TestCommitWithOpenRows(t *testing.T) {
	s := withTable(t, time.Second)
	tx, f := opened(t, s)
	rows, err := tx.QueryContext(t.Context(), `INSERT INTO effect VALUES ('a'), ('b') RETURNING name`)
	require.NoError(t, err)
	t.Cleanup(func() { _ = rows.Close() })
	require.True(t, rows.Next())
	err = s.Commit(t.Context(), tx, completing(f))
	require.EqualError(t, err, "sqlitestore: commit: the transaction was rolled back (SQLITE_BUSY)")
	require.NotErrorIs(t, err, store.ErrBusy)
	require.Equal(t, 0, count(t, s, "effect"))
}

// S12: a client that hangs up while Begin claims loses no transaction.
func TestACancelDoesNotInterruptBegin(t *testing.T) {
	s, ctx := hangingUp(t)
	p := unminted()
	tx, standing, err := s.Begin(ctx, store.Opening{ID: p.ID, Claim: &p})
	require.NoError(t, err)
	require.ErrorIs(t, ctx.Err(), context.Canceled)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
	f := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: standing.Claim.Fence}
	require.NoError(t, s.Commit(ctx, tx, completing(f)))
	standing, err = s.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID})
	require.NoError(t, err)
	require.True(t, standing.Claim.Completed)
}

// S28a: a Begin that waits, for this process or for another, ends with its context or the lock timeout.
func TestBeginWaitsForTheWriter(t *testing.T) {
	file := fresh(t)
	first, hour := open(t, file, nil), open(t, file, &sqlitestore.Config{LockTimeout: time.Hour})
	brief := open(t, file, &sqlitestore.Config{LockTimeout: 20 * time.Millisecond})
	begun, _, err := first.Begin(t.Context(), store.Opening{})
	require.NoError(t, err)
	for _, s := range []*sqlitestore.Store{first, hour} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		_, _, err = s.Begin(ctx, store.Opening{})
		cancel()
		require.ErrorIs(t, err, store.ErrBusy)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	}
	_, _, err = brief.Begin(t.Context(), store.Opening{})
	require.ErrorIs(t, err, store.ErrBusy)
	require.NoError(t, first.Rollback(t.Context(), begun))
	for _, s := range []*sqlitestore.Store{first, hour, brief} {
		tx, _, err := s.Begin(t.Context(), store.Opening{})
		require.NoError(t, err, "no transaction is left")
		require.NoError(t, s.Rollback(t.Context(), tx))
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = first.Begin(ctx, store.Opening{})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrBusy)
}

// S14, S21: a process that is killed in an item's transaction leaves neither effect nor record; its key can be seized.
func TestSeizeAfterAKilledProcess(t *testing.T) {
	file := fresh(t)
	c := startChild(t, "item", file)
	require.Equal(t, "in an item\n", c.line(t))
	require.NoError(t, c.cmd.Process.Kill()) // SIGKILL
	_ = c.cmd.Wait()
	s := open(t, file, nil)
	p := store.SeizeParams{ID: sharedID, Attempt: uuid.New(), Lease: time.Hour}
	standing, err := s.Keep().Seize(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
	require.Equal(t, map[string][]byte{"i1": []byte("x")}, standing.Claim.Items)
	require.Equal(t, 1, count(t, s, "effect"))
}

// itemRole claims the shared key, commits one item, and waits to be killed in the next one's transaction.
func itemRole(file string) error {
	ctx := context.Background()
	s, err := sqlitestore.Open(ctx, file, nil)
	if err != nil {
		return err
	}
	if _, err := s.DB().ExecContext(ctx, `CREATE TABLE effect (name TEXT NOT NULL) STRICT`); err != nil {
		return err
	}
	p := sharedClaim()
	p.Mode, p.FirstItem = store.ModePerItem, ""
	if _, err := s.Own().Claim(ctx, p); err != nil {
		return err
	}
	f := store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: 1}
	for range 2 {
		tx, _, err := s.Begin(ctx, store.Opening{ID: f.ID, Hold: &f})
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO effect VALUES ('effect')`); err != nil {
			return err
		}
		if count := readCount(ctx, tx); count == 2 {
			fmt.Println("in an item")
			waitForLine()
		}
		done := store.ProgressParams{Fenced: f, Done: "i1", Outcome: []byte("x")} // and the lease is over
		if err := s.Commit(ctx, tx, store.Closing{Progress: &done}); err != nil {
			return err
		}
	}
	return nil
}

func readCount(ctx context.Context, tx *sql.Tx) (n int) {
	_ = tx.QueryRowContext(ctx, `SELECT count(*) FROM effect`).Scan(&n)
	return n
}
