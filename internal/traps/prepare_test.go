package traps

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// locked holds the claim table as a migration does, until the test ends.
func locked(t *testing.T, db *pgtest.DB) {
	t.Helper()
	tx := begin(t, db.AdminPool(t))
	must(t, tx, `LOCK TABLE agents.agent_idempotency_key IN ACCESS EXCLUSIVE MODE`)
}

// S28a: trap 1 for the store's own statements: what pgx prepares before a flight waits for the table's lock before the
// flight has set its lock timeout. The wait is bounded all the same, in every query mode, on a cold connection too.
func TestFirstClaimOfAConnectionWaitsBriefly(t *testing.T) {
	t.Parallel()
	for name := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pool := db.Pool(t, alone(modes[name]))
			st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
			require.NoError(t, err)
			id := proposed(t, on(t, db.Pool(t)).st)
			locked(t, db)
			ctx, cancel := context.WithTimeout(t.Context(), 10*lockTimeout)
			defer cancel()
			_, err = st.Own().Claim(ctx, claimOf(id))
			require.True(t, errors.Is(err, store.ErrLockTimeout) || errors.Is(err, store.ErrBusy), "and not the context's end: %v", err)
		})
	}
}

// S28a: when the store's statements cannot be prepared, the caller's transaction is usable after the error as after any other.
func TestTransactionAfterAFailedPrepare(t *testing.T) {
	t.Parallel()
	for name := range modes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db := pgtest.New(t)
			pool := db.Pool(t, alone(modes[name]), func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["lock_timeout"] = "100" })
			st, err := pgstore.NewWithConfig(pool, pgstore.Config{LockTimeout: lockTimeout})
			require.NoError(t, err)
			id := proposed(t, on(t, db.Pool(t)).st)
			locked(t, db)
			tx := begin(t, pool, pgx.TxOptions{})
			_, err = st.In(tx).Claim(t.Context(), claimOf(id))
			require.True(t, errors.Is(err, store.ErrLockTimeout) || errors.Is(err, store.ErrBusy), "%v", err)
			must(t, tx, `INSERT INTO effect (name) VALUES ('own write')`)
			require.NoError(t, tx.Commit(t.Context()))
			assert.Equal(t, 1, effects(t, db.Pool(t), "own write"))
		})
	}
}
