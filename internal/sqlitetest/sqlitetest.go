// Package sqlitetest is the conformance suites' harness on a SQLite file.
package sqlitetest

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/store/sqlitestore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// Harness is the harness on a store, in whose file it makes a table for effects.
func Harness(t testing.TB, st *sqlitestore.Store) storetest.Harness[*sql.Tx] {
	t.Helper()
	if _, err := st.DB().ExecContext(t.Context(), `CREATE TABLE effect (name TEXT NOT NULL) STRICT`); err != nil {
		t.Fatal(err)
	}
	return storetest.Harness[*sql.Tx]{
		Store:    st,
		Begin:    func(ctx context.Context) (*sql.Tx, error) { return st.DB().BeginTx(ctx, nil) },
		Commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		Rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		Effect: func(ctx context.Context, tx *sql.Tx, name string) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO effect (name) VALUES (?)`, name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			return n, st.DB().QueryRowContext(ctx, `SELECT count(*) FROM effect WHERE name = ?`, name).Scan(&n)
		},
		Advance: time.Sleep,
	}
}
