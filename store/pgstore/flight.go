package pgstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store"
)

// step is one statement of a flight and what becomes of its answer.
type step struct {
	sql      string
	args     []any
	affected *int64                // set: receives the number of rows
	scan     func(r pgx.Row) error // set: reads the one row
}

// flight sends steps as one batch, one round trip, all or nothing, bound to the tenant. A dry flight leaves no trace:
// whatever its steps wrote is undone before it lands.
type flight interface {
	send(ctx context.Context, tenant string, dry bool, steps []step) error
}

// ownFlight is a transaction of the store's own: implicit, so that its commit is part of the flight.
type ownFlight struct {
	pool *pgxpool.Pool
	sql  *statements
}

func (f ownFlight) send(ctx context.Context, tenant string, dry bool, steps []step) error {
	all := append([]step{{sql: f.sql.bind, args: []any{tenant}}}, steps...)
	if !dry {
		return run(ctx, f.pool, all)
	}
	return f.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := run(ctx, conn, surround(step{sql: "BEGIN"}, all, step{sql: "ROLLBACK"}))
		if err != nil && !conn.Conn().IsClosed() { // else the pool would have to give the connection up
			_, undoErr := conn.Exec(ctx, "ROLLBACK")
			return errors.Join(err, undoErr)
		}
		return err
	})
}

// joinedFlight is part of a caller's transaction: a savepoint, so that a refusal leaves the transaction usable.
type joinedFlight struct {
	tx  pgx.Tx
	sql *statements
}

func (f joinedFlight) send(ctx context.Context, tenant string, dry bool, steps []step) error {
	var bound string
	join := step{sql: f.sql.join, args: []any{tenant}, scan: func(r pgx.Row) error { return r.Scan(&bound, nil, nil, nil) }}
	end := step{sql: restoreSQL}
	if dry { // the savepoint's end restores the lock timeout too
		end = step{sql: "ROLLBACK TO SAVEPOINT confirmexec"}
	}
	all := surround(join, steps, end)
	err := run(ctx, f.tx, surround(step{sql: "SAVEPOINT confirmexec"}, all, step{sql: "RELEASE SAVEPOINT confirmexec"}))
	if err != nil {
		_, undoErr := f.tx.Exec(ctx, "ROLLBACK TO SAVEPOINT confirmexec; RELEASE SAVEPOINT confirmexec")
		return errors.Join(err, undoErr)
	}
	if bound != tenant {
		return store.ErrTenantMismatch
	}
	return nil
}

func surround(first step, steps []step, last step) []step {
	return append(append([]step{first}, steps...), last)
}

type batchSender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

func run(ctx context.Context, to batchSender, steps []step) error {
	b := &pgx.Batch{}
	for _, st := range steps {
		b.Queue(st.sql, st.args...)
	}
	results := to.SendBatch(ctx, b)
	err := read(results, steps)
	if closeErr := results.Close(); err == nil {
		err = closeErr
	}
	return err
}

func read(results pgx.BatchResults, steps []step) error {
	for _, st := range steps {
		if st.scan != nil {
			if err := st.scan(results.QueryRow()); err != nil {
				return err
			}
			continue
		}
		tag, err := results.Exec()
		if err != nil {
			return err
		}
		if st.affected != nil {
			*st.affected = tag.RowsAffected()
		}
	}
	return nil
}
