package sqlitestore_test

import (
	"context"
	"database/sql"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/sqlitetest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

func open(t *testing.T, file string, cfg *sqlitestore.Config) *sqlitestore.Store {
	t.Helper()
	s, err := sqlitestore.Open(t.Context(), file, cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func fresh(t *testing.T) string { return filepath.Join(t.TempDir(), "claims.db") }

// withTable opens a fresh file that also holds an executor's table.
func withTable(t *testing.T, lockTimeout time.Duration) *sqlitestore.Store {
	t.Helper()
	s := open(t, fresh(t), &sqlitestore.Config{LockTimeout: lockTimeout})
	_, err := s.DB().ExecContext(t.Context(), `CREATE TABLE effect (name TEXT NOT NULL) STRICT`)
	require.NoError(t, err)
	return s
}

func begin(t *testing.T, s *sqlitestore.Store) *sql.Tx {
	t.Helper()
	tx, err := s.DB().BeginTx(context.WithoutCancel(t.Context()), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func count(t *testing.T, s *sqlitestore.Store, table string) (n int) {
	t.Helper()
	require.NoError(t, s.DB().QueryRowContext(t.Context(), `SELECT count(*) FROM `+table).Scan(&n))
	return n
}

func unminted() store.ClaimParams {
	return store.ClaimParams{
		ID: store.ID{Tenant: "firm", Key: uuid.New()}, Attempt: uuid.New(), Mode: store.ModeAtomic,
		Lease: time.Hour, AcceptUnminted: true,
	}
}

// S12, S16, S20, S28a: the claims of a SQLite file.
func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) storetest.Harness[*sql.Tx] {
		return sqlitetest.Harness(t, open(t, fresh(t), &sqlitestore.Config{LockTimeout: 2 * time.Second}))
	})
}

// S28a: a call of Own while its caller holds the only writer ends with the lock timeout.
func TestOwnWithinATransactionEnds(t *testing.T) {
	s := withTable(t, 200*time.Millisecond)
	tx := begin(t, s)
	_, err := s.Own().Claim(t.Context(), unminted())
	require.ErrorIs(t, err, store.ErrBusy)
	_, err = s.Own().Lookup(t.Context(), store.LookupParams{ID: unminted().ID, Barrier: true})
	require.ErrorIs(t, err, store.ErrBusy)
	_, err = s.Own().Lookup(t.Context(), store.LookupParams{ID: unminted().ID})
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	_, err = s.Own().Claim(t.Context(), unminted())
	require.NoError(t, err)
}

// S28a: another store of the same file, as another process has it, holds the writer.
func TestWritesWaitForOtherProcesses(t *testing.T) {
	file := fresh(t)
	first, second := open(t, file, nil), open(t, file, &sqlitestore.Config{LockTimeout: 50 * time.Millisecond})
	tx := begin(t, first)
	p := unminted()
	_, err := second.Own().Claim(t.Context(), p)
	require.ErrorIs(t, err, store.ErrBusy)
	_, err = second.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID, Barrier: true})
	require.ErrorIs(t, err, store.ErrBusy)
	require.NoError(t, tx.Commit())
	_, err = second.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	standing, err := first.Own().Lookup(t.Context(), store.LookupParams{ID: p.ID})
	require.NoError(t, err)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
}

func TestAContextEndsTheWaitForAnotherProcess(t *testing.T) {
	file := fresh(t)
	first, second := open(t, file, nil), open(t, file, &sqlitestore.Config{LockTimeout: time.Hour})
	tx := begin(t, first)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := second.Own().Claim(ctx, unminted())
	require.ErrorIs(t, err, store.ErrBusy)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NoError(t, tx.Rollback())
	_, err = second.Own().Claim(t.Context(), unminted())
	require.NoError(t, err, "the connection is still usable")
}

// S22: an error's text holds SQLite's code and none of SQLite's words.
func TestErrorsHoldNoDriverText(t *testing.T) {
	s := open(t, fresh(t), nil)
	_, err := s.DB().ExecContext(t.Context(), `DROP TABLE agent_idempotency_key`)
	require.NoError(t, err)
	_, err = s.Own().Claim(t.Context(), unminted())
	require.EqualError(t, err, "sqlitestore: claim: the database could not be used (SQLITE_ERROR)")
	require.ErrorContains(t, err.(*store.Error).Cause, "agent_idempotency_key")
}

// S28a: an error half way leaves nothing of the call in the caller's transaction, which stays usable.
func TestAWriteInATransactionIsAllOrNothing(t *testing.T) {
	s := withTable(t, time.Second)
	_, err := s.DB().ExecContext(t.Context(), `CREATE TRIGGER no_items BEFORE INSERT ON agent_idempotency_key
		WHEN NEW.boundary = 'item' BEGIN SELECT raise(ABORT, 'no items'); END`)
	require.NoError(t, err)
	tx := begin(t, s)
	p := unminted()
	p.FirstItem = "i1"
	_, err = s.In(tx).Claim(t.Context(), p)
	require.EqualError(t, err, "sqlitestore: claim: the database could not be used (SQLITE_CONSTRAINT 1811)")
	_, err = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('after')`)
	require.NoError(t, err)
	require.NoError(t, tx.Commit())
	require.Equal(t, 0, count(t, s, "agent_idempotency_key"))
	require.Equal(t, 1, count(t, s, "effect"))
}

// S28a: a deferred transaction becomes a writer for the barrier; a snapshot that is too old for that must be run again.
func TestTheBarrierInAReadOnlyTransaction(t *testing.T) {
	file := fresh(t)
	s, other := open(t, file, nil), open(t, file, nil)
	p := unminted()
	tx, err := s.DB().BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	require.NoError(t, err)
	_, err = s.In(tx).Lookup(t.Context(), store.LookupParams{ID: p.ID})
	require.NoError(t, err)
	_, err = other.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	_, err = s.In(tx).Lookup(t.Context(), store.LookupParams{ID: p.ID, Barrier: true})
	require.ErrorIs(t, err, store.ErrRetryTx)
	require.NoError(t, tx.Rollback())
}
