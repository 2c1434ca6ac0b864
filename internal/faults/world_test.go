package faults

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// How long the faulted side waits. Whatever these are, every invariant must hold; they decide how long a case takes.
const (
	lease        = 2 * time.Second
	storeTimeout = time.Second
	lockTimeout  = 300 * time.Millisecond
	callerWait   = 900 * time.Millisecond // of a caller that is met with silence
	lateness     = 100 * time.Millisecond // of a flight whose client is cut off: less than the lock timeout, so that it can be waited for
	patience     = time.Minute            // for everything that must happen in the end
)

// world is the database of one scenario, and the way to it that no fault is on.
type world struct {
	db    *pgtest.DB
	pool  *pgxpool.Pool
	store *pgstore.Store
	calm  *broker.Broker[pgx.Tx]
	purge *broker.Broker[pgx.Tx] // forgets at once
	hasty *broker.Broker[pgx.Tx] // waits for a lock no longer than the faulted side
}

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{db: pgtest.New(t)}
	w.pool = w.db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 6 })
	w.store = pgstore.New(w.pool)
	w.calm = newBroker(t, w.store, broker.Config{Lease: lease, ReplayWait: -1})
	hasty, err := pgstore.NewWithConfig(w.pool, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	w.hasty = newBroker(t, hasty, broker.Config{Lease: lease, ReplayWait: -1})
	w.purge = newBroker(t, w.store, broker.Config{PayloadRetention: time.Microsecond})
	return w
}

func newBroker(t testing.TB, st store.Store[pgx.Tx], cfg broker.Config) *broker.Broker[pgx.Tx] {
	t.Helper()
	b, err := broker.New(st, &cfg)
	require.NoError(t, err)
	return b
}

// effect is one effect that happened.
type effect struct {
	item    string
	attempt uuid.UUID
}

// rows are the effects of a key in the table.
func (w *world) rows(ctx context.Context, key uuid.UUID) ([]effect, error) {
	rows, err := w.pool.Query(ctx, `SELECT item, attempt FROM public.effect WHERE key = $1`, key)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(r pgx.CollectableRow) (e effect, err error) { return e, r.Scan(&e.item, &e.attempt) })
}

// claimed is the committed claim of a key, as its row says.
type claimed struct {
	attempt   uuid.UUID
	fence     int64
	mode      string
	completed bool
}

func (w *world) claim(ctx context.Context, tenant string, key uuid.UUID) (c claimed, found bool, err error) {
	b := new(pgx.Batch)
	b.Queue(`SELECT set_config('app.firm_id', $1, true)`, tenant)
	b.Queue(`SELECT attempt, fence, mode, completed_at IS NOT NULL FROM agents.agent_idempotency_key
		WHERE firm_id = $1 AND request_id = $2 AND boundary = 'operation'`, tenant, key.String()).Query(func(r pgx.Rows) error {
		for r.Next() {
			found = true
			if err := r.Scan(&c.attempt, &c.fence, &c.mode, &c.completed); err != nil {
				return err
			}
		}
		return r.Err()
	})
	return c, found, w.pool.SendBatch(ctx, b).Close()
}

// transaction tells how a transaction stands: "in progress", "committed" or "aborted".
func (w *world) transaction(ctx context.Context, xid string) (status string, err error) {
	return status, w.pool.QueryRow(ctx, `SELECT coalesce(pg_xact_status($1::text::xid8), 'forgotten')`, xid).Scan(&status)
}

// backends are the server's processes of one application: how many there are, and how many hold a transaction or a lock.
func (w *world) backends(ctx context.Context, application string) (all, busy int, err error) {
	return all, busy, w.pool.QueryRow(ctx, `SELECT count(*), count(*) FILTER (WHERE a.state IS DISTINCT FROM 'idle' OR a.xact_start IS NOT NULL
		OR EXISTS (SELECT FROM pg_locks l WHERE l.pid = a.pid))
		FROM pg_stat_activity a WHERE a.application_name = $1`, application).Scan(&all, &busy)
}

// blocks says whether anybody waits for a lock that one application's transactions hold.
func (w *world) blocks(ctx context.Context, application string) (waits bool, err error) {
	return waits, w.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM pg_stat_activity waiting
		JOIN pg_stat_activity holding ON holding.pid = ANY (pg_blocking_pids(waiting.pid))
		WHERE waiting.wait_event_type = 'Lock' AND holding.application_name = $1)`, application).Scan(&waits)
}
