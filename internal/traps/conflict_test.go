package traps

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// bound begins a transaction that is bound to the firm.
func bound(t *testing.T, pool *pgxpool.Pool, opts ...pgx.TxOptions) pgx.Tx {
	t.Helper()
	tx := begin(t, pool, opts...)
	must(t, tx, `SELECT set_config('app.firm_id', $1, true)`, firm)
	return tx
}

// claimWithParameter claims a key by hand, with the boundary of the conflict target as a parameter.
const claimWithParameter = `INSERT INTO agents.agent_idempotency_key
       (firm_id, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until)
VALUES ($1, $2, $3, decode(repeat('00', 32), 'hex'), $4, 1, 'x', now(), now())
ON CONFLICT (firm_id, request_id) WHERE boundary = $2 DO NOTHING`

// Trap 3, the wrong form: a conflict target whose boundary is a parameter works five times on a connection and fails from
// the sixth on, when PostgreSQL tries a generic plan; with generic plans forced it fails at once.
func TestConflictTargetAsParameter(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for plans, works := range map[string]int{"auto": 5, "force_generic_plan": 0} {
		tx := bound(t, db.Pool(t, planned(plans)))
		for n := range works {
			_, err := tx.Exec(t.Context(), claimWithParameter, firm, "operation", uuid.NewString(), uuid.New())
			require.NoError(t, err, "%s: %d", plans, n+1)
		}
		_, err := tx.Exec(t.Context(), claimWithParameter, firm, "operation", uuid.NewString(), uuid.New())
		sqlState(t, "42P10", err, plans)
	}
}

// Trap 3's neighbour, the wrong form: a unique index without the tenant makes one firm's key another firm's conflict, with a
// row that row security hides: the claim is neither won nor seen.
func TestConflictTargetWithoutTenant(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	must(t, db.AdminPool(t), `CREATE TABLE public.loose (firm_id text, key text UNIQUE);
		ALTER TABLE loose ENABLE ROW LEVEL SECURITY; GRANT SELECT, INSERT ON loose TO `+pgtest.AppRole+`;
		CREATE POLICY own ON loose USING (firm_id = current_setting('app.firm_id', true))`)
	pool := db.Pool(t)
	for i, tenant := range []string{"firm-a", "firm-b"} {
		tx := begin(t, pool)
		must(t, tx, `SELECT set_config('app.firm_id', $1, true)`, tenant)
		tag, err := tx.Exec(t.Context(), `INSERT INTO loose VALUES ($1, 'k') ON CONFLICT (key) DO NOTHING`, tenant)
		require.NoError(t, err)
		assert.EqualValues(t, 1-i, tag.RowsAffected(), "%s wins", tenant)
		assert.Equal(t, 1-i, one[int](t, tx, `SELECT count(*) FROM loose`), "%s sees", tenant)
		require.NoError(t, tx.Commit(t.Context()))
	}
}

// planned makes a pool of one connection with a plan cache mode.
func planned(mode string) func(*pgxpool.Config) {
	return func(c *pgxpool.Config) {
		c.MaxConns = 1
		c.ConnConfig.RuntimeParams["plan_cache_mode"] = mode
	}
}

// S25: trap 3: every statement of the store runs ten times on one connection, whatever the plans are.
func TestStatementsOutliveTheirCustomPlans(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for _, plans := range []string{"auto", "force_generic_plan", "force_custom_plan"} {
		t.Run(plans, func(t *testing.T) {
			pool := db.Pool(t, planned(plans))
			require.Equal(t, plans, one[string](t, pool, `SHOW plan_cache_mode`))
			b := on(t, pool)
			for range 10 {
				c := b.propose("a", "b")
				res, err := b.confirm(c, insert)
				require.NoError(t, err)
				require.NoError(t, res.Err())
				res, err = b.confirm(c, b.never)
				require.NoError(t, err)
				require.True(t, res.Replayed)
				withProgress(t, b)
				_, err = b.Cancel(t.Context(), firm, b.propose("a").IdempotencyKey)
				require.NoError(t, err)
			}
		})
	}
}

// withProgress takes a key through everything that Execute does, and its barrier.
func withProgress(t *testing.T, b *bench) {
	t.Helper()
	c := b.propose("a", "b")
	res, err := b.Execute(t.Context(), request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
		return broker.Applied(it.ID), nil
	})
	require.NoError(t, err)
	require.NoError(t, res.Err())
	require.Equal(t, broker.Completed, b.phase(c))
}

// claimAndTell is the one-statement form: claim the key, or tell who has it.
const claimAndTell = `WITH mine AS (
  INSERT INTO agents.agent_idempotency_key
         (firm_id, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until)
  VALUES ($1, 'operation', $2, decode(repeat('01', 32), 'hex'), $3, 1, 'x', now(), now())
  ON CONFLICT (firm_id, request_id) WHERE boundary = 'operation' DO NOTHING
  RETURNING attempt)
SELECT attempt FROM mine
UNION ALL
SELECT attempt FROM agents.agent_idempotency_key WHERE firm_id = $1 AND request_id = $2 AND boundary = 'operation'`

// Trap 4, the wrong form: one statement that claims or else reads finds neither when it had to wait for the winner: its
// snapshot is older than the winner's commit.
func TestOneStatementSeesNoWinner(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	key := uuid.NewString()
	first, second := bound(t, pool), bound(t, pool)
	must(t, first, claimAndTell, firm, key, uuid.New())
	rows := make(chan []uuid.UUID, 1)
	go func() {
		r, err := second.Query(t.Context(), claimAndTell, firm, key, uuid.New())
		require.NoError(t, err)
		all, err := pgx.CollectRows(r, pgx.RowTo[uuid.UUID])
		require.NoError(t, err)
		rows <- all
	}()
	waitForLock(t, pool, 1)
	require.NoError(t, first.Commit(t.Context()))
	assert.Empty(t, <-rows, "neither won nor seen")
}

// S12, S28a: trap 4: a claim that had to wait for the winner sees it, on its own and in a transaction; in a transaction with
// one snapshot it is told to run the transaction again. It never takes itself for the first.
func TestLoserOfARaceSeesTheWinner(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 12 })
	st := pgstore.New(pool)
	for name, level := range map[string]pgx.TxIsoLevel{
		"own": "", "read committed": pgx.ReadCommitted, "repeatable read": pgx.RepeatableRead, "serializable": pgx.Serializable,
	} {
		id := proposed(t, st)
		claims := st.Own()
		if level != "" {
			claims = st.In(begin(t, pool, pgx.TxOptions{IsoLevel: level}))
		}
		winner := begin(t, pool)
		won, err := st.In(winner).Claim(t.Context(), claimOf(id))
		require.NoError(t, err)
		type answer struct {
			s   store.Standing
			err error
		}
		done := make(chan answer, 1)
		go func() {
			s, err := claims.Claim(t.Context(), claimOf(id))
			done <- answer{s, err}
		}()
		waitForLock(t, pool, 1)
		require.NoError(t, winner.Commit(t.Context()))
		got := <-done
		if level == pgx.RepeatableRead || level == pgx.Serializable {
			require.ErrorIs(t, got.err, store.ErrRetryTx, name)
			continue
		}
		require.NoError(t, got.err, name)
		require.NotNil(t, got.s.Claim, name)
		assert.Equal(t, won.Claim.Attempt, got.s.Claim.Attempt, name)
	}
}

// S28a: trap 5: while a first atomic confirm holds its transaction open, a second one waits for the lock timeout and no
// longer; all those that wait give their connections back. The plain statement would wait for ever.
func TestSecondAtomicConfirmWaitsBriefly(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 8 })
	st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
	require.NoError(t, err)
	b := onStore(t, pool, st, broker.Config{ReplayWait: -1})
	c := b.propose("a")
	first := b.begin()
	_, err = b.ExecuteTx(t.Context(), first, txRequest(c), insert)
	require.NoError(t, err)

	answers := make(chan error, 4)
	for range cap(answers) {
		go func() {
			_, err := b.confirm(c, b.never)
			answers <- err
		}()
	}
	for range cap(answers) {
		require.ErrorIs(t, <-answers, contract.ErrInProgress) // the first transaction is still open
	}
	assert.EqualValues(t, 1, pool.Stat().AcquiredConns(), "only the first transaction holds a connection")

	plain := bound(t, pool)
	waits := make(chan error, 1)
	go func() {
		_, err := plain.Exec(t.Context(), claimAndTell, firm, c.IdempotencyKey.String(), uuid.New())
		waits <- err
	}()
	waitForLock(t, pool, 1)
	select {
	case err := <-waits:
		t.Fatalf("a statement without a lock timeout has ended: %v", err)
	case <-time.After(2 * lockTimeout):
	}
	require.NoError(t, first.Commit(t.Context()))
	require.NoError(t, <-waits)

	res, err := b.confirm(c, b.never)
	require.NoError(t, err)
	assert.True(t, res.Replayed)
}
