package pgstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/contract"
)

//go:embed migrations/*.sql
var migrations embed.FS

// The versions that have been applied to a table; several tables may share a schema.
const (
	versionsSQL = `CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.confirmexec_migration (
  table_name text NOT NULL, version integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (table_name, version))`
	appliedSQL = `SELECT coalesce(max(version), 0) FROM {schema}.confirmexec_migration WHERE table_name = $1`
	recordSQL  = `INSERT INTO {schema}.confirmexec_migration (table_name, version) VALUES ($1, $2)`
	// migrateLock makes processes that migrate at once take turns; nothing but that rests on it.
	migrateLock = `SELECT pg_advisory_xact_lock(hashtext('confirmexec migration'))`
)

// Migrate brings the claim table up to this version of the library, in one transaction: it makes the schema, the table, its
// checks, its indexes and forced row-level security. It may run at every start and from several processes at once. The
// pool's role must be allowed to create schemas and tables and becomes the owner; it should not be the role that the service
// runs as (see [GrantSQL]). A nil cfg means the defaults.
func Migrate(ctx context.Context, pool *pgxpool.Pool, cfg *Config) error {
	c, err := orDefault(cfg)
	if err != nil {
		return err
	}
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return migrate(ctx, tx, c) }); err != nil {
		return fmt.Errorf("pgstore: migrate: %w", err)
	}
	return nil
}

func migrate(ctx context.Context, tx pgx.Tx, c Config) error {
	if _, err := tx.Exec(ctx, migrateLock); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, c.render(versionsSQL)); err != nil {
		return err
	}
	var applied int
	if err := tx.QueryRow(ctx, c.render(appliedSQL), c.Table).Scan(&applied); err != nil {
		return err
	}
	ups, err := fs.Glob(migrations, "migrations/*.up.sql")
	if err != nil {
		return err
	}
	if applied > len(ups) {
		return errors.New("the table was migrated by a newer version of this library")
	}
	for i, file := range ups[applied:] {
		if err := apply(ctx, tx, c, file, applied+i+1); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	return nil
}

func apply(ctx context.Context, tx pgx.Tx, c Config, file string, version int) error {
	if !strings.HasPrefix(file, fmt.Sprintf("migrations/%04d_", version)) {
		return errors.New("migrations are not numbered 1, 2, 3, …: expected number " + strconv.Itoa(version))
	}
	text, err := migrations.ReadFile(file)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, c.render(string(text))); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, c.render(recordSQL), c.Table, version)
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
