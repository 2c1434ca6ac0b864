package fencerace

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/internal/pgtest"
	"github.com/confirmexec/confirmexec/store/pgstore"
)

// rounds is how many rounds a race has.
func rounds(t *testing.T) int64 {
	t.Helper()
	text := os.Getenv("CONFIRMEXEC_FENCERACE")
	if text == "" {
		return 300
	}
	n, err := strconv.ParseInt(text, 10, 64)
	require.NoError(t, err)
	return n
}

// soon is a wait that is now and then long enough for what it waits for.
func soon() <-chan time.Time { return time.After(rand.N(2 * time.Millisecond)) }

// moverFirst lets a writer check and write while the epoch's move is not committed, until it has or wait is over; it commits the move,
// and then the write. It tells whether a write was accepted, which is stale.
func (r *race) moverFirst(write form, round int64, wait <-chan time.Time) (stale bool) {
	r.Helper()
	epoch := r.epoch()
	type begun struct {
		tx  pgx.Tx
		err error
	}
	writer, done := make(chan begun, 1), make(chan struct{})
	err := r.move(r.Context(), epoch, func(pgx.Tx) error {
		go func() {
			defer close(done)
			tx, err := write(r.Context(), r, round, epoch)
			writer <- begun{tx, err}
		}()
		select {
		case <-done:
		case <-wait:
		}
		return nil
	})
	require.NoError(r, err)
	w := <-writer
	stale, err = r.end(r.Context(), w.tx, w.err)
	require.NoError(r, err)
	return stale
}

// writerFirst lets the epoch move while a writer that has checked it is not committed, until it has or wait is over, and then commits
// the write. It tells whether the epoch has moved before that, unseen by the move.
func (r *race) writerFirst(write form, round int64, wait <-chan time.Time) (stale bool) {
	r.Helper()
	epoch := r.epoch()
	tx, err := write(r.Context(), r, round, epoch)
	require.NoError(r, err)
	require.NotNil(r, tx, "the epoch stands")
	var seen bool
	var moveErr error
	moved := make(chan struct{})
	go func() {
		defer close(moved)
		moveErr = r.move(r.Context(), epoch, func(tx pgx.Tx) error {
			return tx.QueryRow(r.Context(), `SELECT EXISTS (SELECT FROM written WHERE round = $1)`, round).Scan(&seen)
		})
	}()
	select {
	case <-moved:
	case <-wait:
	}
	_, err = r.end(r.Context(), tx, nil)
	require.NoError(r, err)
	<-moved
	require.NoError(r, moveErr)
	return !seen
}

// R112, R118: in either order of a mover and a writer, ten thousand times, no stale write is accepted from a writer that holds the
// epoch or has it as its claim's guard; and what is not stale is written.
func TestNoStaleWrite(t *testing.T) {
	t.Parallel()
	for name, write := range ours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRace(t)
			stale := 0
			n := rounds(t) / 2
			for round := range n {
				if r.moverFirst(write, 2*round, soon()) {
					stale++
				}
				if r.writerFirst(write, 2*round+1, soon()) {
					stale++
				}
			}
			assert.Zero(t, stale, "stale writes of %d rounds", 2*n)
			assert.Equal(t, 2*n+1, r.epoch(), "every move was made")
			var written int64
			require.NoError(t, r.pool.QueryRow(t.Context(), `SELECT count(*) FROM written`).Scan(&written))
			assert.Equal(t, n, written, "every write that was not stale was made")
			t.Logf("%d rounds, %d written, %d stale", 2*n, written, stale)
		})
	}
}

// The wrong forms let stale writes through, in both orders; the same check with the right lock does not.
func TestWrongFormsAreStale(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		lock  string
		stale bool
	}{
		"EXISTS without a lock":      {"", true},
		"EXISTS under FOR KEY SHARE": {"FOR KEY SHARE", true},
		"EXISTS under FOR SHARE":     {"FOR SHARE", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRace(t)
			patience := func() <-chan time.Time {
				if c.stale {
					return time.After(time.Minute) // nobody waits for anybody
				}
				return time.After(50 * time.Millisecond)
			}
			for round := range int64(5) {
				assert.Equal(t, c.stale, r.moverFirst(byHand(c.lock), 2*round, patience()), "the mover comes first")
				assert.Equal(t, c.stale, r.writerFirst(byHand(c.lock), 2*round+1, patience()), "the writer comes first")
			}
		})
	}
}

// R112, R118: a mover and four writers without any order between them. When the epoch moves, everything that will ever have been
// written under the old one is committed.
func TestFreeRace(t *testing.T) {
	t.Parallel()
	for name, write := range ours {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRace(t)
			ctx, stop := context.WithCancel(t.Context())
			var writers sync.WaitGroup
			for range 4 {
				writers.Go(func() { r.keepWriting(ctx, write) })
			}
			n := rounds(t)
			const under = `SELECT count(*) FROM written WHERE epoch = $1`
			seen := make([]int64, n+1)
			for epoch := int64(1); epoch <= n; epoch++ {
				require.NoError(t, r.move(t.Context(), epoch, func(tx pgx.Tx) error {
					return tx.QueryRow(t.Context(), under, epoch).Scan(&seen[epoch])
				}))
				time.Sleep(rand.N(time.Millisecond))
			}
			stop()
			writers.Wait()
			var written int64
			for epoch := int64(1); epoch <= n; epoch++ {
				var now int64
				require.NoError(t, r.pool.QueryRow(t.Context(), under, epoch).Scan(&now))
				require.Equal(t, seen[epoch], now, "writes under epoch %d that came after it", epoch)
				written += now
			}
			assert.Positive(t, written, "the writers were in time now and then")
			t.Logf("%d moves, %d writes, 0 stale", n, written)
		})
	}
}

// keepWriting writes under the epoch that it has last heard of, until ctx ends.
func (r *race) keepWriting(ctx context.Context, write form) {
	for ctx.Err() == nil {
		epoch := r.epoch()
		time.Sleep(rand.N(500 * time.Microsecond))
		tx, err := write(r.Context(), r, -1, epoch)
		if _, err = r.end(r.Context(), tx, err); err != nil {
			r.Error(err)
			return
		}
	}
}

// R118, S28a: an epoch can be moved though twenty writers hold it one after the other without a pause. Row locks alone let them pass
// by a mover for more than a minute.
func TestMoverHasItsTurn(t *testing.T) {
	t.Parallel()
	pool := pgtest.New(t).Pool(t, func(c *pgxpool.Config) { c.MaxConns = 21 })
	r := &race{t, pool, pgstore.New(pool)}
	require.NoError(t, r.move(t.Context(), 0, nil))
	ctx, stop := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	for range 20 {
		writers.Go(func() {
			for ctx.Err() == nil {
				tx, err := r.begin(r.Context())
				if err == nil {
					_, err = r.st.Values(tx).Hold(r.Context(), epochID)
					time.Sleep(5 * time.Millisecond)
					_ = r.st.Rollback(r.Context(), tx)
				}
				assert.NoError(t, err)
			}
		})
	}
	var longest time.Duration
	for revision := range int64(10) {
		start := time.Now()
		require.NoError(t, r.move(t.Context(), revision+1, nil))
		longest = max(longest, time.Since(start))
	}
	stop()
	writers.Wait()
	assert.Less(t, longest, 5*time.Second, "the lock timeout")
	t.Logf("the longest move took %v", longest)
}
