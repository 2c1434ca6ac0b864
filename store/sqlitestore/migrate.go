package sqlitestore

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
)

// ErrNewerSchema is Open's error for a file that a newer version of this package has written. The file was not changed.
var ErrNewerSchema = errors.New("sqlitestore: open: the file was written by a newer version of this package")

// migrations holds one file per version, in the order of their names. They only ever go up.
//
//go:embed migrations/*.sql
var migrations embed.FS

// The version has a table of its own. PRAGMA user_version belongs to the service that shares the file.
const (
	createVersion = `CREATE TABLE IF NOT EXISTS agent_idempotency_schema (
		the_only INTEGER PRIMARY KEY CHECK (the_only = 1), version INTEGER NOT NULL) STRICT`
	readVersion  = `SELECT coalesce(max(version), 0) FROM agent_idempotency_schema`
	writeVersion = `INSERT INTO agent_idempotency_schema (the_only, version) VALUES (1, ?1)
		ON CONFLICT (the_only) DO UPDATE SET version = excluded.version`
	touchVersion = `UPDATE agent_idempotency_schema SET version = version + ?1`
)

// migrate brings the schema up to date, in one transaction. A process that comes second finds it done.
func (s *Store) migrate(ctx context.Context) error {
	files, err := fs.Glob(migrations, "migrations/*.sql")
	if err != nil {
		return fmt.Errorf("sqlitestore: open: %w", err)
	}
	var newer error
	err = s.write(ctx, "sqlitestore: open", func(ctx context.Context, q querier) error {
		version, err := schemaVersion(ctx, q)
		if err != nil {
			return err
		}
		if version > len(files) {
			newer = fmt.Errorf("%w: it has schema %d, this one knows %d", ErrNewerSchema, version, len(files))
			return newer
		}
		return runMigrations(ctx, q, files, version)
	})
	if newer != nil {
		return newer
	}
	return err
}

func schemaVersion(ctx context.Context, q querier) (version int, err error) {
	if _, err := q.ExecContext(ctx, createVersion); err != nil {
		return 0, err
	}
	rows, err := q.QueryContext(ctx, readVersion)
	if err != nil {
		return 0, err
	}
	return version, scanOne(rows, &version)
}

func scanOne(rows *sql.Rows, to ...any) error {
	defer func() { _ = rows.Close() }()
	if !rows.Next() {
		return errors.Join(sql.ErrNoRows, rows.Err())
	}
	if err := rows.Scan(to...); err != nil {
		return err
	}
	return rows.Close()
}

func runMigrations(ctx context.Context, q querier, files []string, done int) error {
	for i, file := range files[done:] {
		text, err := migrations.ReadFile(file)
		if err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, string(text)); err != nil {
			return err
		}
		if _, err := q.ExecContext(ctx, writeVersion, done+i+1); err != nil {
			return err
		}
	}
	return nil
}
