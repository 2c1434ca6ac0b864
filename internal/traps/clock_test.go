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

// skews are how far a process's clock is from the database's.
var skews = map[string]time.Duration{"an hour ahead": time.Hour, "an hour behind": -time.Hour, "years behind": -10 * 365 * 24 * time.Hour}

// halfAnHour is less than any skew: what is measured on the process's clock is wrong by more than it.
const halfAnHour = 30 * time.Minute

// S31: leases, expiry, retention and age are the database's, however far from it the process's clock is. A lease that a clock which
// is behind has computed would be over at once, and so a running attempt ambiguous; one by a clock which is ahead would not end.
func TestProcessClockIsWrong(t *testing.T) {
	t.Parallel()
	for name, skew := range skews {
		t.Run(name, func(t *testing.T) {
			db, now := pgtest.New(t), time.Now()
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(now) + skew) // the bubble's clock begins in 2000, and takes no time
				require.Less(t, (time.Since(now) - skew).Abs(), time.Second)
				pool, err := pgxpool.New(context.Background(), db.AppDSN)
				require.NoError(t, err)
				defer pool.Close()
				st := pgstore.New(pool)
				assertLeaseByProcessIsWrong(t, pool, st, skew)
				s := &skewed{on: onStore(t, pool, st, broker.Config{ReplayWait: -1, ProposalExpiry: halfAnHour, PayloadRetention: halfAnHour}),
					brief: onStore(t, pool, st, broker.Config{ReplayWait: -1, ProposalExpiry: 1, PayloadRetention: 1})}
				s.leases(t)
				s.proposals(t)
			})
		})
	}
}

// assertLeaseByProcessIsWrong shows the wrong form: a running lease is over, or one that has ended is not.
func assertLeaseByProcessIsWrong(t *testing.T, pool *pgxpool.Pool, st *pgstore.Store, skew time.Duration) {
	t.Helper()
	behind, lease := skew < 0, halfAnHour
	if !behind {
		lease = -halfAnHour
	}
	byHand := store.ID{Tenant: "by-hand", Key: uuid.New()}
	tx := begin(t, pool)
	must(t, tx, `SELECT set_config('app.firm_id', $1, true)`, byHand.Tenant)
	must(t, tx, leaseByProcess, byHand.Tenant, byHand.Key.String(), uuid.New(), time.Now().Add(lease))
	require.NoError(t, tx.Commit(t.Context()))
	s, err := st.Own().Lookup(t.Context(), store.LookupParams{ID: byHand})
	require.NoError(t, err)
	assert.Equal(t, behind, s.Claim.LeaseOver, "the wrong form")
}

// skewed are two brokers in a process whose clock is wrong: for the second one everything is over at once.
type skewed struct{ on, brief *bench }

// claimed leaves c claimed for that long, by an attempt that is never completed.
func (s *skewed) claimed(t *testing.T, c contract.OperationConfirmation, lease time.Duration) store.Fenced {
	t.Helper()
	digest, err := contract.DigestOf(c.Proposal())
	require.NoError(t, err)
	p := store.ClaimParams{ID: store.ID{Tenant: firm, Key: c.IdempotencyKey}, Digest: digest, Attempt: uuid.New(),
		Mode: store.ModeExternalProgress, Lease: lease, FirstItem: c.Items[0].ID}
	standing, err := s.on.st.Own().Claim(t.Context(), p)
	require.NoError(t, err)
	require.Equal(t, p.Attempt, standing.Claim.Attempt)
	return store.Fenced{ID: p.ID, Attempt: p.Attempt, Fence: standing.Claim.Fence}
}

// answer confirms c with an executor that must run or must not.
func (s *skewed) answer(t *testing.T, c contract.OperationConfirmation, runs bool) string {
	t.Helper()
	return broker.AnswerOf(s.on.Execute(t.Context(), request(c), func(_ context.Context, it broker.Item) (broker.Outcome, error) {
		assert.True(t, runs, "the executor must not run")
		return broker.Applied(it.ID), nil
	}))
}

func (s *skewed) leases(t *testing.T) {
	t.Helper()
	running, renewed, ended := s.on.propose("a", "b"), s.on.propose("a", "b"), s.on.propose("a", "b")
	s.claimed(t, running, halfAnHour)
	held := s.claimed(t, renewed, halfAnHour)
	outcome := contract.EncodeOutcomes([]contract.OperationItemOutcome{{ItemID: "a", State: contract.Applied}})
	require.NoError(t, s.on.st.Own().Progress(t.Context(), store.ProgressParams{Fenced: held, Done: "a", Outcome: outcome, Lease: halfAnHour}))
	s.claimed(t, ended, time.Microsecond)
	for _, c := range []contract.OperationConfirmation{running, renewed} {
		assert.Equal(t, "in_progress", s.answer(t, c, false))
		_, err := s.on.Resolve(t.Context(), broker.Resolution{Tenant: firm, Key: c.IdempotencyKey, By: "on-call"}, nil)
		require.ErrorIs(t, err, contract.ErrInProgress)
	}
	assert.Equal(t, "ambiguous", s.answer(t, ended, false))
	open, err := s.on.ListUnresolved(t.Context(), broker.Page{Tenant: firm})
	require.NoError(t, err)
	require.Len(t, open, 1, "what is running is not listed")
	assert.Equal(t, ended.IdempotencyKey, open[0].Key)
	assert.Positive(t, open[0].Age)
	assert.Less(t, open[0].Age, halfAnHour)
}

func (s *skewed) proposals(t *testing.T) {
	t.Helper()
	done, expired := s.on.propose("a", "b"), s.brief.propose("a")
	assert.Equal(t, "expired", s.answer(t, expired, false))
	assert.Equal(t, broker.Proposed, s.on.phase(done))
	assert.Equal(t, "executed", s.answer(t, done, true))
	assert.Equal(t, "replayed", s.answer(t, done, false))
	purged, err := s.on.Purge(t.Context(), broker.Page{Tenant: firm})
	require.NoError(t, err)
	assert.Zero(t, purged, "within the retention")
	assert.Equal(t, "replayed", s.answer(t, done, false))
	purged, err = s.brief.Purge(t.Context(), broker.Page{Tenant: firm})
	require.NoError(t, err)
	assert.Equal(t, 2, purged, "the completed and the expired one")
	assert.Equal(t, "pruned", s.answer(t, done, false))
	assert.Equal(t, "expired", s.answer(t, expired, false))
}
