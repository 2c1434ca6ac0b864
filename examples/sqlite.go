package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/confirmexec/confirmexec/store/sqlitestore"
)

// The example's own tables stand in the same file as the claims: that is what a transaction over both needs.
const sqliteTables = `
	CREATE TABLE IF NOT EXISTS example_matter (
		firm TEXT, surface TEXT, version TEXT NOT NULL, PRIMARY KEY (firm, surface));
	CREATE TABLE IF NOT EXISTS example_forum (firm TEXT NOT NULL, key TEXT NOT NULL, name TEXT NOT NULL);
	INSERT INTO example_matter VALUES ('firm-a', 'matter:7/forums', 'v1') ON CONFLICT DO NOTHING`

// Every transaction on the store's DB is IMMEDIATE: it holds the only writer, so a row needs no lock of its own.
var sqliteStatements = statements{
	readVersion: `SELECT version FROM example_matter WHERE firm = ? AND surface = ?`,
	addForum:    `INSERT INTO example_forum (firm, key, name) VALUES (?, ?, ?)`,
	countForums: `SELECT count(*) FROM example_forum WHERE key = ?`,
}

func openSQLite(ctx context.Context, path string) (database, error) {
	st, err := sqlitestore.Open(ctx, path, nil)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if _, err := st.DB().ExecContext(ctx, sqliteTables); err != nil {
		return nil, fmt.Errorf("make the example's tables: %w", errors.Join(err, st.Close()))
	}
	return &txDatabase[*sql.Tx]{
		store:    st,
		begin:    func(ctx context.Context) (*sql.Tx, error) { return st.DB().BeginTx(ctx, nil) },
		commit:   func(_ context.Context, tx *sql.Tx) error { return tx.Commit() },
		rollback: func(_ context.Context, tx *sql.Tx) error { return tx.Rollback() },
		exec: func(ctx context.Context, tx *sql.Tx, sql string, args ...any) error {
			_, err := tx.ExecContext(ctx, sql, args...)
			return err
		},
		queryRow: func(ctx context.Context, tx *sql.Tx, sql string, args ...any) interface{ Scan(...any) error } {
			return tx.QueryRowContext(ctx, sql, args...)
		},
		shut: st.Close, sql: sqliteStatements, address: "sqlite:" + path, text: "SQLite, the file " + path,
	}, nil
}
