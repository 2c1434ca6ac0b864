package pgstore_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

const epoch = "the epoch"

func epochOf(firm string, revision int64) store.SwapParams {
	return store.SwapParams{ValueID: store.ValueID{Tenant: firm, Name: epoch}, Revision: revision, Content: fmt.Append(nil, revision+1)}
}

// moved moves the firm's epoch on from revision, in a transaction of the store's own.
func moved(t *testing.T, st *pgstore.Store, firm string, revision int64) {
	t.Helper()
	tx, _, err := st.Begin(t.Context(), store.Opening{ID: store.ID{Tenant: firm}})
	require.NoError(t, err)
	p := epochOf(firm, revision)
	_, err = st.Values(tx).Load(t.Context(), p.ValueID)
	require.NoError(t, err)
	_, err = st.Values(tx).Hold(t.Context(), p.ValueID)
	require.NoError(t, err)
	v, err := st.Values(tx).Swap(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, revision+1, v.Revision)
	require.NoError(t, st.Commit(t.Context(), tx, store.Closing{}))
}

// guardedClaim is a claim of a new key of the firm under its epoch.
func guardedClaim(t *testing.T, st *pgstore.Store, firm string, revision int64) store.ClaimParams {
	t.Helper()
	p := claimOf(proposed(t, st, firm))
	p.Guards = []store.Guard{{Name: epoch, Revision: revision}}
	return p
}

// S28a, S28b, S16: in a caller's transaction every call about values binds the tenant or refuses, restores the lock timeout, makes the
// commit durable only when it has changed something, leaves no savepoint, and leaves the transaction usable after a refusal.
func TestValuesInCallersTransaction(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	for role, pool := range map[string]interface {
		BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
	}{"app": db.Pool(t), "admin": db.AdminPool(t)} {
		firm := "firm-" + role
		st, err := pgstore.NewWithConfig(db.Pool(t), pgstore.Config{LockTimeout: 50 * time.Millisecond})
		require.NoError(t, err)
		moved(t, st, firm, 0)
		holder, _, err := st.Begin(t.Context(), store.Opening{ID: store.ID{Tenant: firm}})
		require.NoError(t, err)
		locked := epochOf(firm, 0)
		locked.Name = "locked"
		_, err = st.Values(holder).Swap(t.Context(), locked)
		require.NoError(t, err)
		p := epochOf(firm, 1)
		for _, c := range []struct {
			name string
			want error
			sync string
			call func(v store.Values, c store.Claims) error
		}{
			{"load", nil, "off", func(v store.Values, _ store.Claims) error { _, err := v.Load(t.Context(), p.ValueID); return err }},
			{"hold", nil, "off", func(v store.Values, _ store.Claims) error { _, err := v.Hold(t.Context(), p.ValueID); return err }},
			{"swap from another revision", store.ErrRevision, "off", func(v store.Values, _ store.Claims) error {
				_, err := v.Swap(t.Context(), epochOf(firm, 7))
				return err
			}},
			{"make what is there", store.ErrRevision, "off", func(v store.Values, _ store.Claims) error {
				_, err := v.Swap(t.Context(), epochOf(firm, 0))
				return err
			}},
			{"make what is locked", store.ErrLockTimeout, "off", func(v store.Values, _ store.Claims) error {
				_, err := v.Swap(t.Context(), locked)
				return err
			}},
			{"claim under another epoch", store.ErrGuard, "off", func(_ store.Values, in store.Claims) error {
				_, err := in.Claim(t.Context(), guardedClaim(t, st, firm, 7))
				return err
			}},
			{"swap", nil, "on", func(v store.Values, _ store.Claims) error { _, err := v.Swap(t.Context(), p); return err }},
			{"make", nil, "on", func(v store.Values, _ store.Claims) error {
				made := epochOf(firm, 0)
				made.Name = "made"
				_, err := v.Swap(t.Context(), made)
				return err
			}},
		} {
			for _, bound := range []string{"", firm, "another firm"} {
				tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{})
				require.NoError(t, err)
				_, err = tx.Exec(t.Context(), `SELECT set_config('app.firm_id', $1, true), set_config('lock_timeout', '1234ms', true),
					set_config('synchronous_commit', 'off', true)`, bound)
				require.NoError(t, err)
				want, after, sync := c.want, firm, c.sync
				if bound == "another firm" {
					want, after, sync = store.ErrTenantMismatch, bound, "off"
				}
				if want == store.ErrLockTimeout { // the savepoint's end has undone the binding too
					after = bound
				}
				require.ErrorIs(t, c.call(st.Values(tx), st.In(tx)), want, "%s: %s as %q", role, c.name, bound)
				assert.Equal(t, after, setting(t, tx, "app.firm_id"), c.name)
				assert.Equal(t, "1234ms", setting(t, tx, "lock_timeout"), c.name)
				assert.Equal(t, sync, setting(t, tx, "synchronous_commit"), c.name)
				_, err = tx.Exec(t.Context(), `ROLLBACK TO SAVEPOINT confirmexec`)
				var pe *pgconn.PgError
				require.ErrorAs(t, err, &pe, c.name)
				assert.Equal(t, "3B001", pe.Code, "%s left a savepoint behind", c.name)
				require.NoError(t, tx.Rollback(t.Context()))
			}
		}
		require.NoError(t, st.Rollback(t.Context(), holder))
	}
}

// world is a firm with an epoch of revision 1, and a transaction whose snapshot is from then.
type world struct {
	t    *testing.T
	st   *pgstore.Store
	firm string
	key  store.ID
	tx   pgx.Tx
}

func (w world) hold(name string) error {
	_, err := w.st.Values(w.tx).Hold(w.t.Context(), store.ValueID{Tenant: w.firm, Name: name})
	return err
}

func (w world) swap(name string, revision int64) error {
	p := epochOf(w.firm, revision)
	p.Name = name
	_, err := w.st.Values(w.tx).Swap(w.t.Context(), p)
	return err
}

func (w world) claim(name string, revision int64) error {
	p := claimOf(w.key)
	p.Guards = []store.Guard{{Name: name, Revision: revision}}
	_, err := w.st.In(w.tx).Claim(w.t.Context(), p)
	return err
}

func (w world) lookup(name string, revision int64) error {
	_, err := w.st.In(w.tx).Lookup(w.t.Context(), store.LookupParams{ID: w.key, Guards: []store.Guard{{Name: name, Revision: revision}}})
	return err
}

// R118, S28a: under REPEATABLE READ and SERIALIZABLE what the snapshot is too old to tell is ErrRetryTx, and never a wrong answer; what it
// is not too old to tell is told.
func TestValuesUnderFixedSnapshots(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	st := pgstore.New(pool)
	const made, never = "made meanwhile", "never made"
	for _, c := range []struct {
		name        string
		still, then error // when nothing has changed since the snapshot; when the epoch has moved to 2 and a value was made
		call        func(w world) error
	}{
		{"hold", nil, store.ErrRetryTx, func(w world) error { return w.hold(epoch) }},
		{"hold what was made", nil, store.ErrRetryTx, func(w world) error { return w.hold(made) }},
		{"hold none", nil, nil, func(w world) error { return w.hold(never) }},
		{"swap from what it sees", nil, store.ErrRetryTx, func(w world) error { return w.swap(epoch, 1) }},
		{"swap from what stands", store.ErrRevision, store.ErrRetryTx, func(w world) error { return w.swap(epoch, 2) }},
		{"swap from neither", store.ErrRevision, store.ErrRetryTx, func(w world) error { return w.swap(epoch, 7) }},
		{"make again", store.ErrRevision, store.ErrRetryTx, func(w world) error { return w.swap(epoch, 0) }},
		{"make what was made", nil, store.ErrRetryTx, func(w world) error { return w.swap(made, 0) }},
		{"swap what was made", store.ErrRevision, store.ErrRetryTx, func(w world) error { return w.swap(made, 1) }},
		{"swap none", store.ErrRevision, store.ErrRevision, func(w world) error { return w.swap(never, 1) }},
		{"claim under what it sees", nil, store.ErrRetryTx, func(w world) error { return w.claim(epoch, 1) }},
		{"claim under what stands", store.ErrGuard, store.ErrRetryTx, func(w world) error { return w.claim(epoch, 2) }},
		{"claim under what was made", store.ErrGuard, store.ErrRetryTx, func(w world) error { return w.claim(made, 1) }},
		{"claim under none", store.ErrGuard, store.ErrGuard, func(w world) error { return w.claim(never, 1) }},
		{"lookup under what it sees", nil, store.ErrRetryTx, func(w world) error { return w.lookup(epoch, 1) }},
		{"lookup under what stands", store.ErrGuard, store.ErrRetryTx, func(w world) error { return w.lookup(epoch, 2) }},
		{"lookup under what was made", store.ErrGuard, store.ErrRetryTx, func(w world) error { return w.lookup(made, 1) }},
		{"lookup under none", store.ErrGuard, store.ErrGuard, func(w world) error { return w.lookup(never, 1) }},
	} {
		for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
			for _, moves := range []bool{false, true} {
				w := world{t: t, st: st, firm: "firm-" + uuid.NewString()}
				w.key = proposed(t, st, w.firm)
				moved(t, st, w.firm, 0)
				w.tx = begin(t, pool, pgx.TxOptions{IsoLevel: level})
				_, err := st.Values(w.tx).Load(t.Context(), epochOf(w.firm, 0).ValueID)
				require.NoError(t, err)
				want := c.still
				if moves {
					want = c.then
					moved(t, st, w.firm, 1)
					other := w
					other.tx = begin(t, pool, pgx.TxOptions{})
					require.NoError(t, other.swap(made, 0))
					require.NoError(t, other.tx.Commit(t.Context()))
				}
				require.ErrorIs(t, c.call(w), want, "%s: %s, moves %t", level, c.name, moves)
				_, err = st.Values(w.tx).Load(t.Context(), epochOf(w.firm, 0).ValueID)
				require.NoError(t, err, "the savepoint was undone")
				require.NoError(t, w.tx.Rollback(t.Context()))
			}
		}
	}
}

// S28a: of two transactions that hold a value and both change it one is told to begin again, and the other has changed it.
func TestHoldersThatSwap(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t)
	st := pgstore.New(pool)
	moved(t, st, "firm-a", 0)
	one, two := begin(t, pool, pgx.TxOptions{}), begin(t, pool, pgx.TxOptions{})
	first, second := st.Values(one), st.Values(two)
	p := epochOf("firm-a", 1)
	for _, v := range []store.Values{first, second} { // at once
		held, err := v.Hold(t.Context(), p.ValueID)
		require.NoError(t, err)
		require.EqualValues(t, 1, held.Revision)
	}
	errs := make(chan error, 2)
	for tx, v := range map[pgx.Tx]store.Values{one: first, two: second} {
		go func() {
			_, err := v.Swap(t.Context(), p)
			if err == nil {
				errs <- tx.Commit(t.Context())
				return
			}
			_ = tx.Rollback(t.Context())
			errs <- err
		}()
	}
	a, b := <-errs, <-errs
	if a == nil {
		a, b = b, a
	}
	require.ErrorIs(t, a, store.ErrRetryTx)
	require.NoError(t, b)
	moved(t, st, "firm-a", 2)
}
