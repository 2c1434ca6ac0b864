package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store/pgstore"
)

// plainRole is the role that everything but the migration runs as, as a service should: it owns nothing and row-level
// security binds it.
const plainRole = "confirmexec_examples"

// One statement makes the role when there is none. CREATE ROLE has no IF NOT EXISTS.
const createRole = `DO $$ BEGIN
	CREATE ROLE ` + plainRole + ` LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`

const postgresTables = `
	CREATE SCHEMA IF NOT EXISTS confirmexec_examples;
	CREATE TABLE IF NOT EXISTS confirmexec_examples.matter (
		firm text, surface text, version text NOT NULL, PRIMARY KEY (firm, surface));
	CREATE TABLE IF NOT EXISTS confirmexec_examples.forum (firm text NOT NULL, key text NOT NULL, name text NOT NULL);
	INSERT INTO confirmexec_examples.matter VALUES ('firm-a', 'matter:7/forums', 'v1') ON CONFLICT DO NOTHING;
	GRANT USAGE ON SCHEMA confirmexec_examples TO ` + plainRole + `;
	GRANT SELECT, UPDATE ON confirmexec_examples.matter TO ` + plainRole + `; -- UPDATE: FOR SHARE asks for it
	GRANT SELECT, INSERT ON confirmexec_examples.forum TO ` + plainRole

var postgresStatements = statements{
	readVersion: `SELECT version FROM confirmexec_examples.matter WHERE firm = $1 AND surface = $2 FOR SHARE`,
	addForum:    `INSERT INTO confirmexec_examples.forum (firm, key, name) VALUES ($1, $2, $3)`,
	countForums: `SELECT count(*) FROM confirmexec_examples.forum WHERE key = $1`,
}

// preparePostgres migrates as the role of the URL, and returns the URL of the same database for the plain role, which
// it makes and gives a new password. Two runs on one server at the same time would take the password from each other.
func preparePostgres(ctx context.Context, dsn string) (string, error) {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return "", fmt.Errorf("open the database: %w", err)
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool, nil); err != nil {
		return "", err
	}
	grants, err := pgstore.GrantSQL(nil, plainRole)
	if err != nil {
		return "", err
	}
	password := rand.Text() // letters and digits only
	setPassword := "ALTER ROLE " + plainRole + " LOGIN PASSWORD '" + password + "'"
	for _, sql := range []string{createRole, setPassword, grants, postgresTables} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("prepare the role %s: %w", plainRole, err)
		}
	}
	return withRole(dsn, plainRole, password)
}

// withRole is dsn for another role.
func withRole(dsn, role, password string) (string, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("-database is not a URL") // err would show its password
	}
	query := u.Query()
	query.Del("user")
	query.Del("password")
	u.User, u.RawQuery = url.UserPassword(role, password), query.Encode()
	return u.String(), nil
}

func connectPostgres(ctx context.Context, dsn string) (database, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, errors.New("-database is not a URL that pgx takes") // err would show it
	}
	d, err := openPostgres(ctx, cfg)
	if err != nil {
		return nil, err
	}
	d.address = dsn
	d.relay = func(ctx context.Context) (*relayed, error) { return openRelayed(ctx, cfg) }
	return d, nil
}

func openPostgres(ctx context.Context, cfg *pgxpool.Config) (*txDatabase[pgx.Tx], error) {
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	d := &txDatabase[pgx.Tx]{
		store:    pgstore.New(pool),
		begin:    pool.Begin,
		commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		exec: func(ctx context.Context, tx pgx.Tx, sql string, args ...any) error {
			_, err := tx.Exec(ctx, sql, args...)
			return err
		},
		queryRow: func(ctx context.Context, tx pgx.Tx, sql string, args ...any) interface{ Scan(...any) error } {
			return tx.QueryRow(ctx, sql, args...)
		},
		shut: func() error { pool.Close(); return nil }, sql: postgresStatements,
	}
	if err := d.check(ctx, pool); err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// check refuses a database that cannot keep the promises, as a service should when it starts, and notes for the reader
// what it is. That a server may lose acknowledged commits is only a warning here: one for tests may.
func (d *txDatabase[TTx]) check(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgstore.Check(ctx, pool, nil)
	found, ok := errors.AsType[*pgstore.CheckError](err)
	if err != nil && !ok {
		return err
	}
	if ok {
		var wrong []pgstore.Finding
		for _, f := range found.Findings {
			if f.Kind == "durability" {
				d.warningTexts = append(d.warningTexts, f.Problem+"; "+f.Fix)
			} else {
				wrong = append(wrong, f)
			}
		}
		if len(wrong) > 0 {
			return &pgstore.CheckError{Findings: wrong}
		}
	}
	var role, version string
	err = pool.QueryRow(ctx, `SELECT current_user, current_setting('server_version')`).Scan(&role, &version)
	if err != nil {
		return fmt.Errorf("ask the server who it is: %w", err)
	}
	d.text = "PostgreSQL " + version + ", the table agents.agent_idempotency_key"
	d.roleText = role + " (no superuser, no BYPASSRLS); row-level security binds it"
	return nil
}
