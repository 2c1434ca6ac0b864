package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store/pgstore"
)

func openPostgres(ctx context.Context, p place, l *ledger) (database, error) {
	pool, err := openPool(ctx, p)
	if err != nil {
		return nil, err
	}
	d, err := onPool(ctx, pool, p.Run, l)
	if err != nil {
		pool.Close()
		return nil, err
	}
	return d, nil
}

// openPool opens all connections of the pool, so that the first key meets the same one as the last.
func openPool(ctx context.Context, p place) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(p.Database)
	if err != nil {
		return nil, errors.New("open the database: the URL of -database is malformed") // err would show its password
	}
	config.MaxConns = int32(p.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	if err := warm(ctx, pool, p.Connections); err != nil {
		pool.Close()
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return pool, nil
}

func warm(ctx context.Context, pool *pgxpool.Pool, connections int) error {
	for range connections {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release() // only when all are there: an idle one would be handed out again
	}
	return nil
}

func onPool(ctx context.Context, pool *pgxpool.Pool, run string, l *ledger) (database, error) {
	if err := check(ctx, pool); err != nil {
		return nil, err
	}
	text, err := describe(ctx, pool)
	if err != nil {
		return nil, err
	}
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
	if err != nil {
		return nil, err
	}
	b, err := newBroker(st)
	if err != nil {
		return nil, err
	}
	return &txDatabase[pgx.Tx]{
		broker:   b,
		begin:    pool.Begin,
		commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		add: func(ctx context.Context, tx pgx.Tx, e effect, pid int) error {
			_, err := tx.Exec(ctx, `INSERT INTO confirmexec_storm.effect VALUES ($1, $2, $3, $4)`, run, e.key, e.item, pid)
			return err
		},
		count: func(ctx context.Context, run string) (counts, error) { return countPostgres(ctx, pool, run) },
		text:  text, shut: func() error { pool.Close(); return nil }, ledger: l,
	}, nil
}

func countPostgres(ctx context.Context, pool *pgxpool.Pool, run string) (counts, error) {
	found, err := pool.Query(ctx, `SELECT key, item, count(*) FROM confirmexec_storm.effect WHERE run = $1
		GROUP BY key, item`, run)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	return readCounts(found)
}

// check is pgstore.Check, but for what a crash of the machine would do: throw-away servers run with fsync off, and the
// storm crashes nothing.
func check(ctx context.Context, pool *pgxpool.Pool) error {
	err := pgstore.Check(ctx, pool, nil)
	found, ok := errors.AsType[*pgstore.CheckError](err)
	if !ok {
		return err
	}
	found.Findings = slices.DeleteFunc(found.Findings, func(f pgstore.Finding) bool { return f.Kind == "durability" })
	if len(found.Findings) == 0 {
		return nil
	}
	return found
}

// describe says which server it is and as whom it is used.
func describe(ctx context.Context, pool *pgxpool.Pool) (string, error) {
	var role, version string
	row := pool.QueryRow(ctx, `SELECT current_user, current_setting('server_version')`)
	if err := row.Scan(&role, &version); err != nil {
		return "", fmt.Errorf("ask the server who it is: %w", err)
	}
	return "PostgreSQL " + version + " as the role " + role, nil
}
