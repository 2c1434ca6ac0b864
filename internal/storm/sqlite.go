package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

const sqlitePrefix = "sqlite:"

// The effects stand in the same file as the claims: that is what a transaction over both needs. No constraint keeps an
// effect from happening twice.
const sqliteTable = `CREATE TABLE IF NOT EXISTS storm_effect (
	run TEXT NOT NULL, key TEXT NOT NULL, item TEXT NOT NULL, pid INTEGER NOT NULL)`

func prepareSQLite(ctx context.Context, p *place) error {
	st, err := openFile(ctx, p.Database)
	if err != nil {
		return err
	}
	if _, err := st.DB().ExecContext(ctx, sqliteTable); err != nil {
		return fmt.Errorf("make the table of effects: %w", errors.Join(err, st.Close()))
	}
	return st.Close()
}

func openFile(ctx context.Context, url string) (*sqlitestore.Store, error) {
	path := strings.TrimPrefix(url, sqlitePrefix)
	st, err := sqlitestore.Open(ctx, path, &sqlitestore.Config{LockTimeout: lockTimeout})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return st, nil
}

func openSQLite(ctx context.Context, p place, l *ledger) (database, error) {
	st, err := openFile(ctx, p.Database)
	if err != nil {
		return nil, err
	}
	b, err := newBroker(st)
	if err != nil {
		return nil, errors.Join(err, st.Close())
	}
	return &txDatabase[*sql.Tx]{
		broker:   b,
		begin:    func(ctx context.Context) (*sql.Tx, error) { return st.DB().BeginTx(ctx, nil) },
		commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		add: func(ctx context.Context, tx *sql.Tx, e effect, pid int) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO storm_effect VALUES (?, ?, ?, ?)`, p.Run, e.key, e.item, pid)
			return err
		},
		count: func(ctx context.Context, run string) (counts, error) { return countSQLite(ctx, st.DB(), run) },
		text:  "SQLite", shut: st.Close, ledger: l,
	}, nil
}

func countSQLite(ctx context.Context, db *sql.DB, run string) (counts, error) {
	const ask = `SELECT key, item, count(*) FROM storm_effect WHERE run = ? GROUP BY key, item`
	found, err := db.QueryContext(ctx, ask, run) //nolint:rowserrcheck // readCounts checks it
	if err != nil {
		return nil, err
	}
	defer func() { _ = found.Close() }()
	return readCounts(found)
}
