package traps

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
	"github.com/confirmexec/confirmexec/store/sqlitestore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

// Reports about poolers, locks, row security, tenancy and embedded databases.

// harness is the suite's harness on one pool.
func harness(t *testing.T, pool *pgxpool.Pool) storetest.Harness[pgx.Tx] {
	t.Helper()
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: time.Second})
	require.NoError(t, err)
	return pgHarness(pool, st)
}

func pgHarness(pool *pgxpool.Pool, st *pgstore.Store) storetest.Harness[pgx.Tx] {
	return storetest.Harness[pgx.Tx]{
		Store:    st,
		Begin:    pool.Begin,
		Commit:   func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) },
		Rollback: func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		Effect: func(ctx context.Context, tx pgx.Tx, name string) error {
			_, err := tx.Exec(ctx, `INSERT INTO effect (name) VALUES ($1)`, name)
			return err
		},
		Count: func(ctx context.Context, name string) (n int, err error) {
			return n, pool.QueryRow(ctx, `SELECT count(*) FROM effect WHERE name = $1`, name).Scan(&n)
		},
		Advance: time.Sleep,
	}
}

// emptied is a harness on a database that other cases have used.
func emptied(t *testing.T, admin, pool *pgxpool.Pool) storetest.Harness[pgx.Tx] {
	t.Helper()
	must(t, admin, `TRUNCATE agents.agent_idempotency_key, effect`)
	return harness(t, pool)
}

// S17, S27: incident 68: bytes are bytes in pgx's simple protocol too. The other modes are pgstore's TestConformance.
func TestIncident68SimpleProtocol(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.AdminPool(t)
	pool := db.Pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol })
	storetest.Run(t, func(t *testing.T) storetest.Harness[pgx.Tx] { return emptied(t, admin, pool) })
}

// S16, S22: incident 72: a role that may insert but not select, by grant or by policy, gets an error or the answer of an
// unknown key; never "stale", never a first run.
func TestIncident72InsertOnly(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]string{
		"grant": `REVOKE SELECT ON agents.agent_idempotency_key FROM ` + pgtest.AppRole,
		"policy": `DROP POLICY confirmexec_tenant ON agents.agent_idempotency_key;
			CREATE POLICY only_insert ON agents.agent_idempotency_key FOR INSERT WITH CHECK (true)`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			b := on(t, db.Pool(t))
			open := onStore(t, b.pool, b.st, broker.Config{ReplayWait: -1, AcceptUnmintedKeys: true})
			c, free := b.propose("a"), b.propose("a")
			_, err := b.confirm(c, insert)
			require.NoError(t, err)
			must(t, db.AdminPool(t), limit)
			for _, key := range []contract.OperationConfirmation{c, free} {
				for _, on := range []*bench{b, open} {
					_, err := on.confirm(key, on.never)
					require.Error(t, err)
					require.NotErrorIs(t, err, contract.ErrStale)
					code, ok := contract.CodeOf(err)
					require.True(t, ok)
					assert.Contains(t, []contract.FailureCode{contract.Unavailable, contract.NotFound}, code, err)
					assert.NotContains(t, err.Error(), "policy", "no text of the database's")
				}
			}
		})
	}
}

// S16: incident 71: also the owner of the table sees nothing while no tenant is bound.
func TestIncident71OwnerIsBound(t *testing.T) {
	t.Parallel()
	db := pgtest.NewEmpty(t)
	admin := db.AdminPool(t)
	must(t, admin, `GRANT CREATE ON DATABASE `+pgx.Identifier{admin.Config().ConnConfig.Database}.Sanitize()+` TO `+pgtest.AppRole)
	owner := db.Pool(t)
	require.NoError(t, pgstore.Migrate(t.Context(), owner, nil))
	proposed(t, pgstore.New(owner))
	assert.Equal(t, 0, one[int](t, owner, `SELECT count(*) FROM agents.agent_idempotency_key`))
	assert.Equal(t, 1, one[int](t, admin, `SELECT count(*) FROM agents.agent_idempotency_key`), "a superuser sees through it")
}

// S12: incident 76: two stores of one SQLite file, each of which reads before it writes, never meet "busy": one executor call.
func TestIncident76TwoWritersOfOneFile(t *testing.T) {
	t.Parallel()
	file := t.TempDir() + "/claims.db"
	var calls atomic.Int32
	brokers := make([]*broker.Broker[*sql.Tx], 4)
	for i := range brokers {
		st, err := sqlitestore.Open(t.Context(), file, &sqlitestore.Config{LockTimeout: time.Minute})
		require.NoError(t, err)
		t.Cleanup(func() { _ = st.Close() })
		brokers[i], err = broker.New(st, &broker.Config{StoreTimeout: time.Minute, ReplayWait: time.Minute})
		require.NoError(t, err)
	}
	for range 5 {
		calls.Store(0)
		c, err := brokers[0].Propose(t.Context(), firm, proposal("a", "b"))
		require.NoError(t, err)
		answers := make(chan error, len(brokers))
		for _, b := range brokers {
			go func() {
				res, err := b.Execute(t.Context(), request(c), applied(&calls))
				if err == nil {
					err = res.Err()
				}
				answers <- err
			}()
		}
		for range brokers {
			require.NoError(t, <-answers)
		}
		assert.EqualValues(t, 2, calls.Load(), "one call per item")
	}
}

// S12: incident 79: a store that refuses the claim, in any of the ways in which PostgreSQL does, never lets the executor run.
func TestIncident79ClaimRefused(t *testing.T) {
	t.Parallel()
	for name, spoil := range map[string]string{
		"no table": `DROP TABLE agents.agent_idempotency_key CASCADE`,
		"no grant": `REVOKE INSERT ON agents.agent_idempotency_key FROM ` + pgtest.AppRole,
		"a trigger": `CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''no''; END';
			CREATE TRIGGER no BEFORE INSERT ON agents.agent_idempotency_key FOR EACH ROW EXECUTE FUNCTION no()`,
		"a constraint": `ALTER TABLE agents.agent_idempotency_key ADD CONSTRAINT no CHECK (boundary <> 'operation')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			b := on(t, db.Pool(t))
			c := b.propose("a")
			must(t, db.AdminPool(t), spoil)
			_, err := b.Execute(t.Context(), request(c), func(context.Context, broker.Item) (broker.Outcome, error) {
				t.Error("the executor must not run")
				return broker.Outcome{}, nil
			})
			require.ErrorIs(t, err, contract.ErrUnavailable)
			_, err = b.confirm(c, b.never)
			require.ErrorIs(t, err, contract.ErrUnavailable)
		})
	}
}
