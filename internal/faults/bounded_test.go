package faults

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/store"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// soon is when a call has ended at the latest whose caller has left, on a machine that is busy.
const soon = 20 * time.Second

// I14: a call ends soon after its caller has left, also when the way to the database falls silent while the call takes back what it
// had begun: a transaction whose claim met another one that does not end, and one whose item the server has refused to commit.
func TestTakingBackIsBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var chains sync.WaitGroup
	for _, s := range []scenario{
		{name: "confirm behind one that does not end", mode: atomically, prepare: claimElsewhere, refused: "in_progress",
			run: func(ctx context.Context, c *trial) answer { return c.confirm(ctx, "confirm, faulted", c.br, c.shaky) }},
		{name: "confirm whose item is not committed", mode: perItem, prepare: func(context.Context, *trial) {}, want: "failed failed failed",
			run: swallowing},
	} {
		for first := range abreast {
			chains.Go(func() {
				for n := first + 1; endsSoon(t, w, s, n); n += abreast {
					require.Less(t, n, mostBoundaries)
				}
			})
		}
	}
	chains.Wait()
}

// abreast is how many boundaries of one scenario are faulted at the same time that mostly wait.
const abreast = 8

// endsSoon partitions the n-th boundary, and says whether there was one.
func endsSoon(t *testing.T, w *world, s scenario, n int) (reached bool) {
	t.Helper()
	var done sync.WaitGroup
	done.Go(func() {
		c := newTrial(t, w, fmt.Sprintf("%s/before/partition/%d", s, n), s.mode)
		defer c.end()
		ctx, leave := c.bounded(patience)
		defer leave()
		s.prepare(ctx, c)
		c.in.Arm(n, faultnet.Before, faultnet.Partition.Then(leave))
		told := c.meanwhile(func() answer { return s.run(ctx, c) })
		var a answer
		select {
		case a = <-told:
			reached = c.in.Reached()
		case <-time.After(soon):
			c.Errorf("I14: the call has not ended after %v", soon)
			reached = true
		}
		c.in.Disarm()
		if a.what == "" {
			a = <-told
		}
		if !reached && !c.failed {
			require.True(c, s.whole(a), "%v", a)
		}
	})
	done.Wait()
	return reached
}

// claimElsewhere claims the key in a transaction that does not end before the trial.
func claimElsewhere(ctx context.Context, c *trial) {
	st := pgstore.New(c.aside())
	digest, err := contract.DigestOf(c.c.Proposal())
	require.NoError(c, err)
	tx, s, err := st.Begin(ctx, store.Opening{ID: c.id(), Claim: &store.ClaimParams{
		ID: c.id(), Digest: digest, Attempt: uuid.New(), Mode: store.ModeAtomic, Lease: patience,
	}})
	require.NoError(c, err)
	require.NotNil(c, s.Claim)
	c.Cleanup(func() { _ = st.Rollback(context.Background(), tx) })
}

// swallowing confirms with an executor that does not tell of its SQL error: the server then refuses to commit.
func swallowing(ctx context.Context, c *trial) answer {
	a := c.ask("confirm, faulted")
	a.res, a.err = c.br.ExecutePerItem(ctx, c.request(), func(ctx context.Context, tx pgx.Tx, it broker.Item) (broker.Outcome, error) {
		_, _ = tx.Exec(ctx, "SELECT 1 / 0")
		return broker.Applied("ref/" + it.ID), nil
	})
	return c.note(a)
}
