package brokertest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/internal/faultnet"
	"github.com/confirmexec/confirmexec/internal/pgtest"
)

// counted is a bench whose one connection goes through a counter; its statements have been prepared.
func counted(t *testing.T, cfg broker.Config) (*bench[pgx.Tx], *faultnet.Counter) {
	t.Helper()
	counter := faultnet.Count(t, pgtest.New(t).AppDSN)
	pc, err := pgxpool.ParseConfig(counter.DSN())
	require.NoError(t, err)
	pc.MaxConns = 1
	pc.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // a trip after a second's rest
	pool, err := pgxpool.NewWithConfig(t.Context(), pc)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	b := newBench(t, postgres(t, pool), execute, &cfg)
	for range 2 { // every statement once, so that none is prepared while trips are counted
		c := b.propose("a", "b", "c")
		stale := request(c)
		stale.Current = moved()
		_, _ = b.confirm(stale, b.never)
		_, err = b.confirm(request(c), apply)
		require.NoError(t, err)
		b.phase(c)
		_, err = b.Cancel(b.ctx, firmA, b.propose("a").IdempotencyKey)
		require.NoError(t, err)
		for _, mode := range []string{inTx, atomically, perItem} {
			b.mode = mode
			c := b.propose("a", "b")
			_, err = b.confirm(request(c), apply)
			require.NoError(t, err)
			_, err = b.confirm(request(c), b.never)
			require.NoError(t, err)
		}
		b.mode = execute
	}
	return b, counter
}

// S12, S17: what a confirm costs in network round trips (design section 13).
func TestRoundTrips(t *testing.T) {
	for _, progress := range []bool{true, false} {
		b, counter := counted(t, broker.Config{ReplayWait: -1, NoProgress: !progress})
		var one, three contract.OperationConfirmation
		unclaimed := b.propose("a")
		stale, other, expired := request(unclaimed), request(otherContent(unclaimed)), b.with(broker.Config{ProposalExpiry: 1}).propose("a")
		stale.Current = moved()
		never := unclaimed
		never.IdempotencyKey[0]++
		confirm := func(c *contract.OperationConfirmation) func() {
			return func() { _, _ = b.confirm(request(*c), apply) }
		}
		of3 := 2
		if progress {
			of3 = 4
		}
		for _, c := range []struct {
			name string
			call func()
			want int
		}{
			{"propose", func() { one = b.propose("a") }, 1},
			{"propose 3", func() { three = b.propose("a", "b", "c") }, 1},
			{"execute", confirm(&one), 2},
			{"execute 3", confirm(&three), of3},
			{"replay", confirm(&one), 1},
			{"replay 3", confirm(&three), 1},
			{"stale", func() { _, _ = b.confirm(stale, b.never) }, 1},
			{"conflict", func() { _, _ = b.confirm(other, b.never) }, 1},
			{"not minted", confirm(&never), 1},
			{"expired", confirm(&expired), 2},
			{"lookup", func() { b.phase(one) }, 1},
			{"cancel", func() { _, _ = b.Cancel(b.ctx, firmA, unclaimed.IdempotencyKey) }, 2},
		} {
			assert.Equal(t, c.want, counter.During(c.call), "progress %t: %s", progress, c.name)
		}
	}
}

// S12, S17: what the transactional modes cost, of which n are the executor's own statements. ExecuteTx counts with the caller's
// own BEGIN and COMMIT.
func TestRoundTripsInTransaction(t *testing.T) {
	b, counter := counted(t, broker.Config{ReplayWait: -1})
	for mode, cost := range map[string]struct {
		first  func(n int) int
		replay int
	}{
		inTx:       {func(n int) int { return 2*n + 3 + 2 }, 1 + 2},
		atomically: {func(n int) int { return 2*n + 3 }, 1 + 1}, // the replay's BEGIN has to be rolled back
		perItem:    {func(n int) int { return 3*n + 2 }, 1},
	} {
		b.mode = mode
		for _, n := range []int{1, 2, 5} {
			var ids []string
			for i := range n {
				ids = append(ids, fmt.Sprint("item-", i))
			}
			c := b.propose(ids...)
			assert.Equal(t, cost.first(n), counter.During(func() {
				_, err := b.confirm(request(c), apply)
				require.NoError(t, err)
			}), "%s of %d items", mode, n)
			assert.Equal(t, cost.replay, counter.During(func() {
				_, err := b.confirm(request(c), b.never)
				require.NoError(t, err)
			}), "replay of %s of %d items", mode, n)
		}
	}
}
