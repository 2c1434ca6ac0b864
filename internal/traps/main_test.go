package traps

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/internal/pgtest/claims"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

func TestMain(m *testing.M) { pgtest.Main(m, schema) }

// schema makes the claim table and what the executors of the tests write to: effect, and what they must not reach.
var schema = claims.Schema(`CREATE TABLE public.effect (name text NOT NULL, once text UNIQUE);
		GRANT SELECT, INSERT ON public.effect TO {role};
		CREATE TABLE public.readonly (name text);
		CREATE SCHEMA secret; CREATE TABLE secret.effect (name text)`)

const (
	firm = "firm-a"
	// lockTimeout is of stores in tests that wait for its end.
	lockTimeout = 300 * time.Millisecond
)

// modes are all query modes of pgx.
var modes = map[string]pgx.QueryExecMode{
	"cache statement": pgx.QueryExecModeCacheStatement,
	"cache describe":  pgx.QueryExecModeCacheDescribe,
	"describe exec":   pgx.QueryExecModeDescribeExec,
	"exec":            pgx.QueryExecModeExec,
	"simple protocol": pgx.QueryExecModeSimpleProtocol,
}

// alone makes a pool of one connection in a query mode.
func alone(mode pgx.QueryExecMode) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.DefaultQueryExecMode = mode
	}
}

var fresh = contract.CurrentSurfaceState{SurfaceKey: "matter:7/forums", ContractVersion: "v1"}

func proposal(ids ...string) contract.OperationProposal {
	p := contract.OperationProposal{SurfaceKey: fresh.SurfaceKey, ContractVersion: fresh.ContractVersion}
	for _, id := range ids {
		p.Items = append(p.Items, contract.Item{ID: id, Op: "add_forum", Params: json.RawMessage(`{"name":"forum ` + id + `"}`)})
	}
	return p
}

// bench is a broker on one pool.
type bench struct {
	*broker.Broker[pgx.Tx]
	t    testing.TB
	pool *pgxpool.Pool
	st   *pgstore.Store
}

func on(t testing.TB, pool *pgxpool.Pool) *bench {
	t.Helper()
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: 5 * time.Second})
	require.NoError(t, err)
	return onStore(t, pool, st, broker.Config{ReplayWait: -1})
}

func onStore(t testing.TB, pool *pgxpool.Pool, st *pgstore.Store, cfg broker.Config) *bench {
	t.Helper()
	b, err := broker.New(st, &cfg)
	require.NoError(t, err)
	return &bench{b, t, pool, st}
}

func (b *bench) propose(ids ...string) contract.OperationConfirmation {
	b.t.Helper()
	c, err := b.Propose(b.t.Context(), firm, proposal(ids...))
	require.NoError(b.t, err)
	return c
}

func request(c contract.OperationConfirmation) broker.Request {
	return broker.Request{Tenant: firm, Confirmation: c, Current: fresh}
}

func txRequest(c contract.OperationConfirmation) broker.TxRequest[pgx.Tx] {
	return broker.TxRequest[pgx.Tx]{Request: request(c)}
}

// insert writes one effect named after the item.
func insert(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
	_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, it.ID)
	return broker.Applied(it.ID), err
}

// withDetail is an executor that writes, and tells text.
func withDetail(text string) broker.TxExecutor[pgx.Tx] {
	return func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		out, err := insert(ctx, tx, it)
		return out.WithDetail(text), err
	}
}

// never fails the test when it is called.
func (b *bench) never(context.Context, pgx.Tx, broker.Item) (broker.Outcome, error) {
	b.t.Error("the executor must not run")
	return broker.Outcome{}, nil
}

// applied counts its calls and is applied.
func applied(calls *atomic.Int32) broker.Executor {
	return func(_ context.Context, it broker.Item) (broker.Outcome, error) {
		calls.Add(1)
		return broker.Applied(it.ID), nil
	}
}

// confirm executes in a transaction and commits it, or rolls it back after an error.
func (b *bench) confirm(c contract.OperationConfirmation, exec broker.TxExecutor[pgx.Tx]) (*contract.OperationResult, error) {
	b.t.Helper()
	ctx := b.t.Context()
	tx, err := b.pool.Begin(ctx)
	require.NoError(b.t, err)
	res, err := b.ExecuteTx(ctx, tx, txRequest(c), exec)
	if err != nil {
		require.NoError(b.t, tx.Rollback(ctx))
		return nil, err
	}
	return res, tx.Commit(ctx)
}

func (b *bench) begin(opts ...pgx.TxOptions) pgx.Tx {
	b.t.Helper()
	return begin(b.t, b.pool, opts...)
}

func begin(t testing.TB, pool *pgxpool.Pool, opts ...pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), append(opts, pgx.TxOptions{})[0])
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

func (b *bench) phase(c contract.OperationConfirmation) broker.Phase {
	b.t.Helper()
	st, err := b.Lookup(b.t.Context(), firm, c.IdempotencyKey)
	require.NoError(b.t, err)
	return st.Phase
}

// querier is a pool, a connection or a transaction.
type querier interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// one reads one value.
func one[V any](t testing.TB, q querier, sql string, args ...any) (v V) {
	t.Helper()
	require.NoError(t, q.QueryRow(t.Context(), sql, args...).Scan(&v), sql)
	return v
}

func effects(t testing.TB, q querier, name string) int {
	t.Helper()
	return one[int](t, q, `SELECT count(*) FROM effect WHERE name = $1`, name)
}

func must(t testing.TB, tx interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
}, sql string, args ...any,
) {
	t.Helper()
	_, err := tx.Exec(t.Context(), sql, args...)
	require.NoError(t, err, sql)
}

// sqlState fails the test unless err carries this SQLSTATE.
func sqlState(t testing.TB, state string, err error, msg ...any) {
	t.Helper()
	var pe *pgconn.PgError
	require.ErrorAs(t, err, &pe, msg...)
	require.Equal(t, state, pe.Code, msg...)
}

func states(r *contract.OperationResult) []contract.OutcomeState {
	var s []contract.OutcomeState
	for _, o := range r.Outcomes {
		s = append(s, o.State)
	}
	return s
}

// waitForLock returns when n backends of the database wait for another's lock.
func waitForLock(t testing.TB, pool *pgxpool.Pool, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		return one[int](t, pool, `SELECT count(DISTINCT l.pid) FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE NOT l.granted AND a.datname = current_database()`) >= n
	}, 20*time.Second, 5*time.Millisecond)
}

// proposed is a key of the firm with a proposal of digest 1.
func proposed(t testing.TB, st *pgstore.Store) store.ID {
	t.Helper()
	id := store.ID{Tenant: firm, Key: uuid.New()}
	require.NoError(t, st.Own().Propose(t.Context(),
		store.ProposeParams{ID: id, Digest: contract.Digest{1}, Content: []byte("{}"), Expiry: time.Hour}))
	return id
}

func claimOf(id store.ID) store.ClaimParams {
	return store.ClaimParams{ID: id, Digest: contract.Digest{1}, Attempt: uuid.New(), Mode: store.ModeAtomic, Lease: time.Hour}
}

func ids(n int) []string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("item-", i))
	}
	return all
}
