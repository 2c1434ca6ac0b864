package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store/pgstore"
)

// plainRole is the role that everything but the migration runs as, as a service should: it owns nothing and row-level
// security binds it.
const plainRole = "confirmexec_storm"

// One statement makes the role when there is none. CREATE ROLE has no IF NOT EXISTS.
const createRole = `DO $$ BEGIN
	CREATE ROLE ` + plainRole + ` LOGIN NOSUPERUSER NOBYPASSRLS NOCREATEDB NOCREATEROLE;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$`

// No constraint keeps an effect from happening twice.
const postgresTable = `
	CREATE SCHEMA IF NOT EXISTS confirmexec_storm;
	CREATE TABLE IF NOT EXISTS confirmexec_storm.effect (
		run text NOT NULL, key text NOT NULL, item text NOT NULL, pid int NOT NULL);
	GRANT USAGE ON SCHEMA confirmexec_storm TO ` + plainRole + `;
	GRANT SELECT, INSERT ON confirmexec_storm.effect TO ` + plainRole

// preparePostgres migrates as the role of the URL and makes the plain role, with a new password: two runs on one server
// at the same time would take it from each other.
func preparePostgres(ctx context.Context, o *options, p *place) error {
	pool, err := pgxpool.New(ctx, p.Database)
	if err != nil {
		return errors.New("open the database: the URL of -database is malformed") // err would show its password
	}
	defer pool.Close()
	if err := pgstore.Migrate(ctx, pool, nil); err != nil {
		return err
	}
	grants, err := pgstore.GrantSQL(nil, plainRole)
	if err != nil {
		return err
	}
	password := rand.Text() // letters and digits only
	setPassword := "ALTER ROLE " + plainRole + " LOGIN PASSWORD '" + password + "'"
	for _, sql := range []string{createRole, setPassword, grants, postgresTable} {
		if _, err := pool.Exec(ctx, sql); err != nil {
			return fmt.Errorf("prepare the role %s: %w", plainRole, err)
		}
	}
	if p.Connections, err = connections(ctx, pool, o); err != nil {
		return err
	}
	p.Database, err = withRole(p.Database, plainRole, password)
	return err
}

// spare is how many connections the storm leaves to the parent and to others.
const spare = 8

// connections says how many each process may have: one for each goroutine if the server has them.
func connections(ctx context.Context, pool *pgxpool.Pool, o *options) (int, error) {
	const ask = `SELECT current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
		- (SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database)::int`
	var free int
	if err := pool.QueryRow(ctx, ask).Scan(&free); err != nil {
		return 0, fmt.Errorf("count the server's connections: %w", err)
	}
	each := min((free-spare)/o.processes, o.goroutines)
	if each < 1 {
		return 0, fmt.Errorf("the server has %d free connections: too few for %d processes", free, o.processes)
	}
	return each, nil
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
