package pgstore

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store"
)

// step is one statement of a flight and what becomes of its answer.
type step struct {
	sql      string
	args     []any
	keyless  bool                   // what it may have to wait for is not the key's
	affected *int64                 // set: receives the number of rows
	scan     func(r pgx.Row) error  // set: reads the one row
	rows     func(r pgx.Rows) error // set: reads all rows
}

// flight sends steps as one batch, one round trip, all or nothing, bound to the tenant. A dry flight leaves no trace:
// whatever its steps wrote is undone before it lands.
type flight interface {
	send(ctx context.Context, tenant string, dry bool, steps []step) error
}

// ownFlight is a transaction of the store's own, whose beginning and commit are part of the flight.
type ownFlight struct {
	pool *pgxpool.Pool
	sql  *statements
}

func (f ownFlight) send(ctx context.Context, tenant string, dry bool, steps []step) error {
	all := append([]step{{sql: f.sql.bind, args: []any{tenant}}}, steps...)
	var err error
	for range deadlockTries {
		if err = f.once(ctx, dry, all); kindOf(err) != store.ErrRetryTx { //nolint:errorlint // kindOf returns the sentinel itself
			break
		}
	}
	return err
}

// deadlockTries bounds how often a flight is sent that met a deadlock; it was undone each time.
const deadlockTries = 5

// begin names the isolation: a role's default may be stricter, and its snapshots would not see who won.
const begin = "BEGIN ISOLATION LEVEL READ COMMITTED"

func (f ownFlight) once(ctx context.Context, dry bool, steps []step) error {
	end := step{sql: "COMMIT"}
	if dry {
		end = step{sql: "ROLLBACK"}
	}
	return f.pool.AcquireFunc(ctx, func(conn *pgxpool.Conn) error {
		err := f.run(ctx, conn, append(steps, end))
		if err != nil && !conn.Conn().IsClosed() { // else the pool would have to give the connection up
			_, undoErr := conn.Exec(ctx, "ROLLBACK")
			return errors.Join(err, undoErr)
		}
		return err
	})
}

// run sends steps in one transaction. On a connection that has not seen all of them its beginning goes first, in a flight of its
// own, with the lock timeout: pgx prepares what is new before it sends anything, and that would wait without a bound.
func (f ownFlight) run(ctx context.Context, conn *pgxpool.Conn, steps []step) error {
	known := knownTo(conn.Conn())
	if known.all(steps) {
		return known.learn(steps, run(ctx, conn, append([]step{{sql: begin}}, steps...)))
	}
	if _, err := conn.Exec(ctx, begin+"; "+f.sql.wait); err != nil {
		return err
	}
	return known.learn(steps, run(ctx, conn, steps))
}

// joinedFlight is part of a caller's transaction: a savepoint, so that a refusal leaves the transaction usable.
type joinedFlight struct {
	tx  pgx.Tx
	sql *statements
}

func (f joinedFlight) send(ctx context.Context, tenant string, dry bool, steps []step) error {
	var bound string
	join := step{sql: f.sql.join, args: []any{tenant}, scan: func(r pgx.Row) error { return r.Scan(&bound) }}
	end := step{sql: restoreSQL}
	if dry { // the savepoint's end restores the lock timeout too
		end = step{sql: "ROLLBACK TO SAVEPOINT confirmexec"}
	}
	all := surround(join, steps, end)
	if err := f.run(ctx, append(all, step{sql: "RELEASE SAVEPOINT confirmexec"})); err != nil {
		if errors.Is(err, pgx.ErrTxClosed) {
			return err // there is nothing to undo
		}
		undoCtx, cancel := undoing(ctx)
		defer cancel()
		if _, undoErr := f.tx.Exec(undoCtx, "ROLLBACK TO SAVEPOINT confirmexec; RELEASE SAVEPOINT confirmexec"); undoErr != nil {
			return &brokenTx{err, undoErr}
		}
		return err
	}
	if bound != tenant {
		return store.ErrTenantMismatch
	}
	return nil
}

// run sends steps behind the savepoint and the lock timeout. On a connection that has not seen all of them these go first, in a
// flight of their own: pgx prepares what is new before anything else, where a failure would have no savepoint to go back to and
// a wait no bound.
func (f joinedFlight) run(ctx context.Context, steps []step) error {
	known, all := knownTo(f.tx.Conn()), surround(step{sql: "SAVEPOINT confirmexec"}, []step{{sql: f.sql.wait}}, steps...)
	if known.all(all) {
		return known.learn(all, run(ctx, f.tx, all))
	}
	if _, err := f.tx.Exec(ctx, "SAVEPOINT confirmexec; "+f.sql.wait); err != nil {
		return err
	}
	return known.learn(all, run(ctx, f.tx, steps))
}

// statementsSeen are the statements that a connection has prepared for this package.
type statementsSeen map[string]bool

// knownTo returns what a connection has seen; nil, which knows nothing and learns nothing, without one.
func knownTo(conn *pgx.Conn) statementsSeen {
	if conn == nil { // a caller's own kind of transaction may not tell
		return nil
	}
	const key = "confirmexec.statements"
	data := conn.PgConn().CustomData()
	seen, ok := data[key].(statementsSeen)
	if !ok {
		seen = statementsSeen{}
		data[key] = seen
	}
	return seen
}

func (s statementsSeen) all(steps []step) bool {
	for _, st := range steps {
		if !s[st.sql] {
			return false
		}
	}
	return true
}

// learn notes what a flight with this error has left behind, and returns the error: of one that failed pgx forgets every statement.
func (s statementsSeen) learn(steps []step, err error) error {
	if s == nil {
		return err
	}
	for _, st := range steps {
		if err == nil {
			s[st.sql] = true
		} else {
			delete(s, st.sql)
		}
	}
	return err
}

// undoTimeout bounds the way back from what failed in a transaction.
const undoTimeout = 5 * time.Second

// undoing is the context of such a way back, which the end of ctx may be the reason for.
func undoing(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), undoTimeout)
}

// brokenTx is the fault of a flight that could not be undone: whatever the reason was, the transaction is not usable any more.
// That is so, for one, when a statement failed while pgx prepared it, which it does before the savepoint stands.
type brokenTx struct {
	err, undoErr error
}

func (e *brokenTx) Error() string { return e.err.Error() + "; and then: " + e.undoErr.Error() }

func surround(first step, steps []step, last ...step) []step {
	return append(append([]step{first}, steps...), last...)
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
	for i, st := range steps {
		if err := st.read(results); err != nil {
			if st.keyless || i == 0 { // the first is also told what pgx met when it prepared them all
				err = beside(err)
			}
			return err
		}
	}
	return nil
}

// beside adds to a lock timeout that it says nothing of the key.
func beside(err error) error {
	if sqlState(err) == lockNotAvailable {
		return errors.Join(store.ErrBusy, err)
	}
	return err
}

func (st step) read(results pgx.BatchResults) error {
	switch {
	case st.scan != nil:
		return st.scan(results.QueryRow())
	case st.rows != nil:
		rows, err := results.Query()
		if err != nil {
			return err
		}
		return st.rows(rows)
	}
	tag, err := results.Exec()
	if err == nil && st.affected != nil {
		*st.affected = tag.RowsAffected()
	}
	return err
}
