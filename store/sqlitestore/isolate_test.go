package sqlitestore_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/store"
)

// S28a: an executor that ends its caller's transaction undoes it, and writes nothing after that.
func TestIsolateNoticesATransactionThatWasEnded(t *testing.T) {
	exec := func(query string) func(*sql.Tx) error {
		return func(tx *sql.Tx) error {
			_, err := tx.ExecContext(context.Background(), query)
			return err
		}
	}
	for name, end := range map[string]func(*sql.Tx) error{
		"Commit":              (*sql.Tx).Commit,
		"Rollback":            (*sql.Tx).Rollback,
		"COMMIT":              exec("COMMIT"),
		"ROLLBACK":            exec("ROLLBACK"),
		"ROLLBACK and BEGIN":  exec("ROLLBACK; BEGIN IMMEDIATE"),
		"RELEASE":             exec("RELEASE confirmexec_item"),
		"INSERT OR ROLLBACK":  exec("INSERT OR ROLLBACK INTO effect VALUES (NULL)"),
		"ROLLBACK and an err": func(tx *sql.Tx) error { return errors.Join(exec("ROLLBACK")(tx), errors.New("broken")) },
	} {
		t.Run(name, func(t *testing.T) {
			s := withTable(t, time.Second)
			tx := begin(t, s)
			p := unminted()
			_, err := s.In(tx).Claim(t.Context(), p)
			require.NoError(t, err)
			calls := 0
			_, err = s.Isolate(t.Context(), tx, 2, func(_ int, tx *sql.Tx) error {
				calls++
				err := end(tx)
				_, _ = tx.ExecContext(context.Background(), `INSERT INTO effect VALUES ('effect')`)
				return err
			})
			require.ErrorIs(t, err, store.ErrTxEnded)
			require.Equal(t, 1, calls)
			_ = tx.Rollback()
			require.Equal(t, 0, count(t, s, "effect"))
			require.Equal(t, 0, count(t, s, "agent_idempotency_key"))
		})
	}
}

// S28a: nothing commits by itself in a transaction that an executor ended by ROLLBACK.
func TestAnEndedTransactionIsNotWrittenTo(t *testing.T) {
	s := withTable(t, time.Second)
	tx := begin(t, s)
	_, err := tx.ExecContext(t.Context(), "ROLLBACK")
	require.NoError(t, err)

	_, err = s.In(tx).Claim(t.Context(), unminted())
	require.ErrorIs(t, err, store.ErrTxEnded)
	require.ErrorIs(t, s.In(tx).Propose(t.Context(), store.ProposeParams{}), store.ErrTxEnded)
	_, err = s.In(tx).Lookup(t.Context(), store.LookupParams{Barrier: true})
	require.ErrorIs(t, err, store.ErrTxEnded)
	_, err = s.Isolate(t.Context(), tx, 1, func(int, *sql.Tx) error { return errors.New("called") })
	require.ErrorIs(t, err, store.ErrTxEnded)

	require.Error(t, tx.Commit())
	require.Equal(t, 0, count(t, s, "agent_idempotency_key"))
}

// S15: SQLite undoes a failed statement by itself, and the item goes on.
func TestIsolateKeepsAnItemThatSwallowedAnError(t *testing.T) {
	s := withTable(t, time.Second)
	tx := begin(t, s)
	undone, err := s.Isolate(t.Context(), tx, 1, func(_ int, tx *sql.Tx) error {
		_, err := tx.ExecContext(t.Context(), `INSERT INTO effect VALUES (NULL)`)
		require.Error(t, err)
		_, err = tx.ExecContext(t.Context(), `INSERT INTO effect VALUES ('kept')`)
		return err
	})
	require.NoError(t, err)
	require.Equal(t, []error{nil}, undone)
	require.NoError(t, tx.Commit())
	require.Equal(t, 1, count(t, s, "effect"))
}

// A context that ends rolls the caller's transaction back; nobody blames an executor for it.
func TestIsolateInATransactionWhoseContextEnded(t *testing.T) {
	s := withTable(t, time.Second)
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := s.DB().BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = s.Isolate(ctx, tx, 1, func(_ int, tx *sql.Tx) error {
		cancel()
		for { // until database/sql has rolled it back
			if _, err := tx.ExecContext(context.Background(), "SELECT 1"); errors.Is(err, sql.ErrTxDone) {
				return nil
			}
		}
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, store.ErrTxEnded)
}

// S15: SQLite makes no savepoint while the rows of a RETURNING are open. The transaction is broken, and nothing is
// said of a lock or of an end that did not happen.
func TestIsolateWithOpenRows(t *testing.T) {
	for _, fails := range []error{nil, errors.New("broken")} {
		s := withTable(t, time.Second)
		tx := begin(t, s)
		_, err := s.Isolate(t.Context(), tx, 2, func(_ int, tx *sql.Tx) error {
			rows, err := tx.QueryContext(t.Context(), `INSERT INTO effect VALUES ('a'), ('b') RETURNING name`)
			require.NoError(t, err)
			t.Cleanup(func() { _ = rows.Close() })
			require.True(t, rows.Next())
			return fails
		})
		require.EqualError(t, err, "sqlitestore: isolate: the database could not be used (SQLITE_BUSY)")
		require.NoError(t, err.(*store.Error).Kind)
		_, err = s.In(tx).Claim(t.Context(), unminted())
		require.NotErrorIs(t, err, store.ErrBusy)
		require.NoError(t, tx.Rollback())
		require.Equal(t, 0, count(t, s, "effect"))
		_, err = s.Own().Claim(t.Context(), unminted())
		require.NoError(t, err, "the connection is still usable")
	}
}
