package traps

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// leaseByProcess claims a key by hand, with a lease that the process's clock has computed.
const leaseByProcess = `INSERT INTO agents.agent_idempotency_key
       (firm_id, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until)
VALUES ($1, 'operation', $2, decode(repeat('01', 32), 'hex'), $3, 1, 'external', now(), $4)`

// S31: leases and expiry are the database's: in a process whose clock is years behind a lease is as long as it was asked for,
// a proposal lives as long as it should, and a confirm runs and replays. A lease from that process's clock would be over at
// once, and so a running attempt ambiguous.
func TestProcessClockIsYearsBehind(t *testing.T) {
	t.Parallel()
	db := pgtest.New(t)
	synctest.Test(t, func(t *testing.T) {
		require.Equal(t, 2000, time.Now().Year())
		ctx := context.Background()
		pool, err := pgxpool.New(ctx, db.AppDSN)
		require.NoError(t, err)
		defer pool.Close()
		st := pgstore.New(pool)
		byHand := store.ID{Tenant: firm, Key: uuid.New()}
		tx := bound(t, pool)
		must(t, tx, leaseByProcess, firm, byHand.Key.String(), uuid.New(), time.Now().Add(time.Hour))
		require.NoError(t, tx.Commit(ctx))
		s, err := st.Own().Lookup(ctx, store.LookupParams{ID: byHand})
		require.NoError(t, err)
		assert.True(t, s.Claim.LeaseOver, "the wrong form")

		id := proposed(t, st)
		p := claimOf(id)
		s, err = st.Own().Claim(ctx, p)
		require.NoError(t, err)
		require.NotNil(t, s.Claim)
		assert.False(t, s.Claim.LeaseOver)
		assert.False(t, s.Proposal.Expired)
		held := store.Fenced{ID: id, Attempt: p.Attempt, Fence: s.Claim.Fence}
		require.NoError(t, st.Own().Progress(ctx, store.ProgressParams{Fenced: held, Done: "a", Outcome: []byte("x"), Lease: time.Hour}))
		s, err = st.Own().Lookup(ctx, store.LookupParams{ID: id})
		require.NoError(t, err)
		assert.False(t, s.Claim.LeaseOver, "renewed")

		b := onStore(t, pool, st, broker.Config{ReplayWait: -1})
		c := b.propose("a", "b")
		first, err := b.Execute(ctx, request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
			return broker.Applied(it.ID), nil
		})
		require.NoError(t, err)
		assert.Equal(t, contract.Tally{Applied: 2}, first.Tally())
		second, err := b.Execute(ctx, request(c), func(context.Context, broker.Item) (broker.Outcome, error) {
			t.Error("the executor must not run again")
			return broker.Outcome{}, nil
		})
		require.NoError(t, err)
		assert.Equal(t, first.Outcomes, second.Outcomes)
	})
}
