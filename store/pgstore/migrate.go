package pgstore

import (
	"archive/zip"
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/contract"
)

//go:embed migrations/*.sql
var embedded embed.FS

//go:embed row_security.sql
var rowSecuritySQL string

// The versions that have been applied to a table; several tables may share a schema.
const (
	versionsSQL = `CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.confirmexec_migration (
  table_name text NOT NULL, version integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (table_name, version))`
	appliedSQL = `SELECT coalesce(max(version), 0) FROM {schema}.confirmexec_migration WHERE table_name = $1`
	recordSQL  = `INSERT INTO {schema}.confirmexec_migration (table_name, version) VALUES ($1, $2)`
	forgetSQL  = `DELETE FROM {schema}.confirmexec_migration WHERE table_name = $1 AND version = $2`
	// migrateLock makes processes that migrate at once take turns; nothing but that rests on it.
	migrateLock = `SELECT pg_advisory_xact_lock(hashtext('confirmexec migration'))`
	discardSQL  = `SELECT set_config('confirmexec.discard', 'on', true)`
)

// ErrOperationsExist is in the chain of MigrateDown's error while the table holds operations or values.
var ErrOperationsExist = errors.New("the claim table holds operations or values: without it keys could be executed again, " +
	"and what was fenced off could come back")

// Migrations returns the migrations as raw SQL for the names in cfg, for teams that run them with a tool of their own:
// 0001_claims.up.sql, 0001_claims.down.sql and so on, each to be run in one transaction, in order. A nil cfg means the defaults.
func Migrations(cfg *Config) (fs.FS, error) {
	c, err := orDefault(cfg)
	if err != nil {
		return nil, err
	}
	files, err := fs.Glob(embedded, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var archive bytes.Buffer // an archive in memory is the standard library's file system over made content
	w := zip.NewWriter(&archive)
	for _, file := range files {
		text, err := embedded.ReadFile(file)
		if err != nil {
			return nil, err
		}
		f, err := w.Create(path.Base(file))
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(f, c.render(string(text))); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zip.NewReader(bytes.NewReader(archive.Bytes()), int64(archive.Len()))
}

// Migrate brings the claim table up to this version of the library, in one transaction. It makes the schema, the table, its
// checks, its indexes and forced row-level security; a table that exists it extends: other boundaries' rows stay, their
// owner's checks go on to hold for them, and row security stays as it is until [EnableRowSecurity].
//
// It may run at every start and from several processes at once. The pool's role must be allowed to create schemas and tables
// and becomes the owner; it should not be the role that the service runs as (see [GrantSQL]). A nil cfg means the defaults.
func Migrate(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	return inMigration(ctx, pool, cfg, "migrate", func(tx pgx.Tx, c Config, applied int, files []string) error {
		for version := applied + 1; version <= len(files); version++ {
			if err := runFile(ctx, tx, c, files[version-1], recordSQL, version); err != nil {
				return err
			}
		}
		return nil
	})
}

// MigrateDown takes the library out of the table again: its rows, checks, indexes and columns, and the table itself if Migrate
// made it and no other boundary uses it. It refuses with [ErrOperationsExist] while there are operations or values, and changes
// nothing then. A nil cfg means the defaults.
func MigrateDown(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	return migrateDown(ctx, pool, cfg, false)
}

// MigrateDownDiscarding is MigrateDown that also discards operations and values: every key that was executed can then be executed
// again, and every value begins again at revision 1, which lets in what it had fenced off.
func MigrateDownDiscarding(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	return migrateDown(ctx, pool, cfg, true)
}

func migrateDown(ctx context.Context, pool *pgxpool.Pool, cfg *Config, discard bool) error {
	err := inMigration(ctx, pool, cfg, "migrate down", func(tx pgx.Tx, c Config, applied int, files []string) error {
		if discard {
			if _, err := tx.Exec(ctx, discardSQL); err != nil {
				return err
			}
		}
		for version := applied; version > 0; version-- {
			down := strings.TrimSuffix(files[version-1], ".up.sql") + ".down.sql"
			if err := runFile(ctx, tx, c, down, forgetSQL, version); err != nil {
				return err
			}
		}
		return nil
	})
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Code == "55006" {
		return fmt.Errorf("pgstore: migrate down: %w", ErrOperationsExist)
	}
	return err
}

const rowSecurityDo = "DO $confirmexec$ BEGIN {row_security} END $confirmexec$"

// EnableRowSecurity switches row-level security on for a table that existed before Migrate, and forces it: from then on every
// statement on it, the owner's too, sees only the rows of the tenant that its transaction has bound. It refuses a table that
// has policies already. A nil cfg means the defaults.
func EnableRowSecurity(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	return inMigration(ctx, pool, cfg, "enable row security", func(tx pgx.Tx, c Config, _ int, _ []string) error {
		var policies int
		err := tx.QueryRow(ctx, c.render(`SELECT count(*) FROM pg_policy WHERE polrelid = {table_literal}::regclass`)).Scan(&policies)
		if err != nil {
			return err
		}
		if policies > 0 {
			return errors.New("the table has row security policies already; they are its owner's to change")
		}
		_, err = tx.Exec(ctx, c.render(rowSecurityDo))
		return err
	})
}

// inMigration runs fn in one transaction, alone among migrations, with the version that is applied and the files of all.
func inMigration(ctx context.Context, pool *pgxpool.Pool, cfg *Config, doing string,
	fn func(tx pgx.Tx, c Config, applied int, files []string) error,
) error {
	c, err := orDefault(cfg)
	if err != nil {
		return err
	}
	files, err := fs.Glob(embedded, "migrations/*.up.sql")
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		for _, sql := range []string{migrateLock, versionsSQL} {
			if _, err := tx.Exec(ctx, c.render(sql)); err != nil {
				return err
			}
		}
		var applied int
		if err := tx.QueryRow(ctx, c.render(appliedSQL), c.Table).Scan(&applied); err != nil {
			return err
		}
		if applied > len(files) {
			return errors.New("the table was migrated by a newer version of this library")
		}
		return fn(tx, c, applied, files)
	})
	if err != nil {
		return fmt.Errorf("pgstore: %s: %w", doing, err)
	}
	return nil
}

// runFile runs one migration and books it with sql.
func runFile(ctx context.Context, tx pgx.Tx, c Config, file, sql string, version int) error {
	if !strings.HasPrefix(file, fmt.Sprintf("migrations/%04d_", version)) {
		return fmt.Errorf("migrations are not numbered 1, 2, 3, …: expected number %d", version)
	}
	text, err := embedded.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, c.render(string(text))); err != nil {
		return fmt.Errorf("%s: %w", file, withHint(err))
	}
	_, err = tx.Exec(ctx, c.render(sql), c.Table, version)
	return err
}

// withHint adds what to do, which pgx leaves out of an error's text. Migrations raise no values but names.
func withHint(err error) error {
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok && pe.Hint != "" {
		return fmt.Errorf("%w: %s", err, pe.Hint)
	}
	return err
}

// GrantSQL returns the statements that let role use the claim table, and nothing more: it may select, insert and update,
// not delete. Run them as the table's owner. A nil cfg means the defaults.
func GrantSQL(cfg *Config, role string) (string, error) {
	c, err := orDefault(cfg)
	if err != nil {
		return "", err
	}
	if role == "" || strings.ContainsRune(role, 0) || len(role) > 63 {
		return "", &contract.InvalidError{Path: "/role", Problem: "must be a role name of 1 to 63 bytes"}
	}
	name := pgx.Identifier{role}.Sanitize()
	return c.render("GRANT USAGE ON SCHEMA {schema} TO " + name + ";\nGRANT SELECT, INSERT, UPDATE ON {table} TO " + name + ";\n"), nil
}

func orDefault(cfg *Config) (Config, error) {
	if cfg == nil {
		cfg = &Config{}
	}
	return cfg.withDefaults()
}
