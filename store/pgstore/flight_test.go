package pgstore_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

var outcome = []byte("outcome")

// S12: a write that the database refuses only when it commits was not made, and is not told as made.
func TestRefusedAtCommit(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	p := db.Pool(t)
	st := pgstore.New(p)
	first, second := proposed(t, st, "firm-a"), proposed(t, st, "firm-a")
	s, err := st.Own().Claim(t.Context(), claimOf(first))
	require.NoError(t, err)
	held := store.Fenced{ID: first, Attempt: s.Claim.Attempt, Fence: 1}
	_, err = db.AdminPool(t).Exec(t.Context(), `ALTER TABLE agents.agent_idempotency_key
		ADD CONSTRAINT one_operation EXCLUDE (firm_id WITH =) WHERE (boundary = 'operation') DEFERRABLE INITIALLY DEFERRED,
		ADD CONSTRAINT one_item EXCLUDE (firm_id WITH =) WHERE (boundary = 'item') DEFERRABLE INITIALLY DEFERRED`)
	require.NoError(t, err)
	refused := func(err error, what string) {
		t.Helper()
		var e *store.Error
		require.ErrorAs(t, err, &e, what)
		assert.NoError(t, e.Kind, what)
		assert.Equal(t, "23P01", e.Code, what)
	}
	_, err = st.Own().Claim(t.Context(), claimOf(second))
	refused(err, "claim")
	require.NoError(t, st.Own().Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: outcome, Lease: time.Hour}))
	refused(st.Own().Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "b", Outcome: outcome, Lease: time.Hour}), "progress")
	s, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: first})
	require.NoError(t, err)
	assert.Len(t, s.Claim.Items, 1)
}

// S19: a look behind the barrier that fails leaves its connection as it was: outside a transaction, and in use.
func TestBarrierThatFailsLeavesTheConnection(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	one := db.Pool(t, func(c *pgxpool.Config) { c.MaxConns = 1 })
	st, err := pgstore.NewWithConfig(one, pgstore.Config{LockTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	other := db.Pool(t)
	id := proposed(t, st, "firm-a")
	holder := begin(t, other, pgx.TxOptions{})
	_, err = pgstore.New(other).In(holder).Claim(t.Context(), claimOf(id))
	require.NoError(t, err)
	connection := func() (pid int, status byte) {
		conn, err := one.Acquire(t.Context())
		require.NoError(t, err)
		defer conn.Release()
		status = conn.Conn().PgConn().TxStatus()
		require.NoError(t, conn.QueryRow(t.Context(), `SELECT pg_backend_pid()`).Scan(&pid))
		return pid, status
	}
	before, _ := connection()
	for range 3 {
		_, err = st.Own().Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
		require.ErrorIs(t, err, store.ErrLockTimeout)
		after, status := connection()
		assert.Equal(t, before, after, "the same connection")
		assert.Equal(t, "I", string(status), "outside a transaction")
	}
	require.NoError(t, holder.Rollback(t.Context()))
	s, err := st.Own().Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true})
	require.NoError(t, err)
	assert.Nil(t, s.Claim)
	after, status := connection()
	assert.Equal(t, before, after)
	assert.Equal(t, "I", string(status))
}

// S16, S28a: a transaction that is bound to another tenant is refused, and nothing was written in it by then, also as a role that
// row-level security does not bind.
func TestForeignTransactionWithoutRowSecurity(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	admin := db.AdminPool(t)
	st := pgstore.New(admin)
	free, taken := proposed(t, st, "firm-a"), proposed(t, st, "firm-a")
	claim := claimOf(taken)
	claim.FirstItem = "a"
	_, err := st.Own().Claim(t.Context(), claim)
	require.NoError(t, err)
	held := store.Fenced{ID: taken, Attempt: claim.Attempt, Fence: 1}
	table := func() (rows []string) {
		r, err := admin.Query(t.Context(), `SELECT k::text FROM agents.agent_idempotency_key k ORDER BY 1`)
		require.NoError(t, err)
		rows, err = pgx.CollectRows(r, pgx.RowTo[string])
		require.NoError(t, err)
		return rows
	}
	before := table()
	cancel, unminted, first := claimOf(free), claimOf(store.ID{Tenant: "firm-a", Key: uuid.New()}), claimOf(free)
	cancel.Outcomes, unminted.AcceptUnminted, first.FirstItem = outcome, true, "a"
	for name, call := range map[string]func(in store.Claims) error{
		"propose": func(in store.Claims) error {
			return in.Propose(t.Context(), store.ProposeParams{ID: store.ID{Tenant: "firm-a", Key: uuid.New()}, Expiry: time.Hour})
		},
		"claim":          func(in store.Claims) error { _, err := in.Claim(t.Context(), claimOf(free)); return err },
		"claim, started": func(in store.Claims) error { _, err := in.Claim(t.Context(), first); return err },
		"cancel":         func(in store.Claims) error { _, err := in.Claim(t.Context(), cancel); return err },
		"claim unminted": func(in store.Claims) error { _, err := in.Claim(t.Context(), unminted); return err },
		"look up": func(in store.Claims) error {
			_, err := in.Lookup(t.Context(), store.LookupParams{ID: free, Barrier: true, AwaitWrites: true})
			return err
		},
		"progress": func(in store.Claims) error {
			return in.Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: outcome, Next: "b", Lease: time.Hour})
		},
		"complete": func(in store.Claims) error {
			return in.Complete(t.Context(), store.CompleteParams{Fenced: held, Outcomes: outcome})
		},
	} {
		tx := begin(t, admin, pgx.TxOptions{})
		_, err := tx.Exec(t.Context(), `SELECT set_config('app.firm_id', 'firm-b', true), set_config('synchronous_commit', 'off', true)`)
		require.NoError(t, err)
		require.ErrorIs(t, call(st.In(tx)), store.ErrTenantMismatch, name)
		assert.Equal(t, "firm-b", setting(t, tx, "app.firm_id"), name)
		assert.Equal(t, "off", setting(t, tx, "synchronous_commit"), name)
		require.NoError(t, tx.Commit(t.Context()), name)
		assert.Equal(t, before, table(), "%s wrote nothing", name)
	}
}

// S28a: no call in a caller's transaction leaves a savepoint behind, whether it was done or refused: they would pile up.
func TestCallsLeaveNoSavepoint(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st, err := pgstore.NewWithConfig(p, pgstore.Config{LockTimeout: 50 * time.Millisecond})
	require.NoError(t, err)
	id, claimed, locked := proposed(t, st, "firm-a"), proposed(t, st, "firm-a"), proposed(t, st, "firm-a")
	_, err = st.Own().Claim(t.Context(), claimOf(claimed))
	require.NoError(t, err)
	holder := begin(t, p, pgx.TxOptions{})
	_, err = st.In(holder).Claim(t.Context(), claimOf(locked))
	require.NoError(t, err)
	tx := begin(t, p, pgx.TxOptions{})
	mine := claimOf(id)
	held := store.Fenced{ID: id, Attempt: mine.Attempt, Fence: 1}
	for _, c := range []struct {
		name string
		want error
		call func(in store.Claims) error
	}{
		{"propose", nil, func(in store.Claims) error {
			return in.Propose(t.Context(), store.ProposeParams{ID: store.ID{Tenant: "firm-a", Key: uuid.New()}, Expiry: time.Hour})
		}},
		{"propose again", store.ErrDuplicate, func(in store.Claims) error {
			return in.Propose(t.Context(), store.ProposeParams{ID: id, Expiry: time.Hour})
		}},
		{"look up", nil, func(in store.Claims) error { _, err := in.Lookup(t.Context(), store.LookupParams{ID: id}); return err }},
		{"look behind", nil, func(in store.Claims) error {
			_, err := in.Lookup(t.Context(), store.LookupParams{ID: id, Barrier: true, AwaitWrites: true})
			return err
		}},
		{"look behind what is locked", store.ErrLockTimeout, func(in store.Claims) error {
			_, err := in.Lookup(t.Context(), store.LookupParams{ID: locked, Barrier: true})
			return err
		}},
		{"claim what is locked", store.ErrLockTimeout, func(in store.Claims) error {
			_, err := in.Claim(t.Context(), claimOf(locked))
			return err
		}},
		{"claim what is claimed", nil, func(in store.Claims) error { _, err := in.Claim(t.Context(), claimOf(claimed)); return err }},
		{"claim", nil, func(in store.Claims) error { _, err := in.Claim(t.Context(), mine); return err }},
		{"progress", nil, func(in store.Claims) error {
			return in.Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: outcome, Lease: time.Hour})
		}},
		{"complete", nil, func(in store.Claims) error {
			return in.Complete(t.Context(), store.CompleteParams{Fenced: held, Outcomes: outcome})
		}},
		{"complete again", store.ErrFenced, func(in store.Claims) error {
			return in.Complete(t.Context(), store.CompleteParams{Fenced: held, Outcomes: outcome})
		}},
		{"another tenant", store.ErrTenantMismatch, func(in store.Claims) error {
			_, err := in.Lookup(t.Context(), store.LookupParams{ID: store.ID{Tenant: "firm-b", Key: id.Key}})
			return err
		}},
		{"isolate", nil, func(store.Claims) error {
			_, err := st.Isolate(t.Context(), tx, 3, func(i int, tx pgx.Tx) error {
				if i == 1 {
					_, _ = tx.Exec(t.Context(), `SELECT 1/0`)
				}
				return map[int]error{2: errors.New("refused")}[i]
			})
			return err
		}},
	} {
		for try := range 2 { // also once it is prepared
			if c.name != "claim" && c.name != "progress" && c.name != "complete" || try == 0 {
				require.ErrorIs(t, c.call(st.In(tx)), c.want, c.name)
			}
			for _, savepoint := range []string{"confirmexec", "confirmexec_item"} {
				_, err = tx.Exec(t.Context(), `SAVEPOINT probe`)
				require.NoError(t, err, c.name)
				_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT `+savepoint)
				var pe *pgconn.PgError
				require.ErrorAs(t, err, &pe, "%s left savepoint %s behind", c.name, savepoint)
				assert.Equal(t, "3B001", pe.Code)
				_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT probe; RELEASE SAVEPOINT probe`)
				require.NoError(t, err, c.name)
			}
		}
	}
}

// S15, S12: what an executor swallowed is found however deep and however late it met it: an item's error is the item's with its
// first cause, a serialization failure or a deadlock is the transaction's.
func TestSwallowedErrorsByKind(t *testing.T) {
	t.Parallel()
	p := pgtest.New(t).Pool(t)
	st := pgstore.New(p)
	ctx := t.Context()
	raise := func(tx pgx.Tx, state string) { _, _ = tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '`+state+`'; END $$`) }
	ways := map[string]func(tx pgx.Tx, state string){
		"plainly": raise,
		"nested": func(tx pgx.Tx, state string) {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			raise(nested, state)
		},
		"nested twice": func(tx pgx.Tx, state string) {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			nested, err = nested.Begin(ctx)
			require.NoError(t, err)
			raise(nested, state)
		},
		"then another": func(tx pgx.Tx, state string) {
			raise(tx, state)
			_, _ = tx.Exec(ctx, `SELECT 1`)
		},
		"in a batch": func(tx pgx.Tx, state string) {
			b := &pgx.Batch{}
			b.Queue(`DO $$ BEGIN RAISE SQLSTATE '` + state + `'; END $$`)
			_ = tx.SendBatch(ctx, b).Close()
		},
		"after one that was handled": func(tx pgx.Tx, state string) {
			nested, err := tx.Begin(ctx)
			require.NoError(t, err)
			raise(nested, "23505")
			require.NoError(t, nested.Rollback(ctx))
			raise(tx, state)
		},
	}
	for _, state := range []string{"55P03", "3B001", "25P01", "25P02", "22012"} { // and one that it returned is its item's
		tx := begin(t, p, pgx.TxOptions{})
		undone, err := st.Isolate(ctx, tx, 2, func(i int, tx pgx.Tx) error {
			if i == 1 {
				return nil
			}
			_, err := tx.Exec(ctx, `DO $$ BEGIN RAISE SQLSTATE '`+state+`'; END $$`)
			return err
		})
		require.NoError(t, err, state)
		var pe *pgconn.PgError
		require.ErrorAs(t, undone[0], &pe)
		assert.Equal(t, state, pe.Code)
		assert.NoError(t, undone[1], state)
		require.NoError(t, tx.Rollback(ctx))
	}
	for way, swallow := range ways {
		for _, state := range []string{"55P03", "3B001", "25P01", "22012", "40001", "40P01"} {
			tx := begin(t, p, pgx.TxOptions{})
			undone, err := st.Isolate(ctx, tx, 2, func(i int, tx pgx.Tx) error {
				if i == 0 {
					swallow(tx, state)
				}
				return nil
			})
			if state == "40001" || state == "40P01" {
				require.ErrorIs(t, err, store.ErrRetryTx, "%s %s", state, way)
			} else {
				require.NoError(t, err, "%s %s", state, way)
				var pe *pgconn.PgError
				require.ErrorAs(t, undone[0], &pe, "%s %s", state, way)
				want := state
				if way == "after one that was handled" {
					want = "23505"
				}
				assert.Equal(t, want, pe.Code, "%s %s", state, way)
				assert.NoError(t, undone[1])
			}
			require.NoError(t, tx.Rollback(ctx))
		}
	}
}

// S8: an executor's error in a transaction that it has ended by itself is not one to run the transaction again for.
func TestRetryableAfterTheEnd(t *testing.T) {
	t.Parallel()
	st := pgstore.New(pgtest.New(t).Pool(t))
	for _, end := range []string{`SELECT 1`, `COMMIT`, `ROLLBACK`} {
		tx, _, err := st.Begin(t.Context(), store.Opening{ID: store.ID{Tenant: "firm-a"}})
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), end)
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), `DO $$ BEGIN RAISE SQLSTATE '40001'; END $$`)
		require.Error(t, err)
		assert.Equal(t, end == `SELECT 1`, st.Retryable(tx, err), end)
		if err = st.Rollback(t.Context(), tx); end == `SELECT 1` {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, store.ErrTxEnded, end)
		}
	}
}
