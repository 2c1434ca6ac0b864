package brokertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store/memstore"
	"github.com/confirmexec/confirmexec/store/storetest"
)

const source = "agent-1"

func fact(id string) broker.Fact {
	return broker.Fact{Tenant: firmA, Source: source, ID: id, Kind: "recording.uploaded", Content: []byte("content of " + id)}
}

// queue queues a fact in a transaction of its own, which it commits or rolls back.
func (b *bench[TTx]) queue(f broker.Fact, commit bool) (broker.QueuedFact, error) {
	b.Helper()
	for {
		tx, err := b.Harness.Begin(b.ctx)
		require.NoError(b, err)
		q, err := b.QueueFact(b.ctx, tx, f)
		if err != nil || !commit {
			require.NoError(b, b.Harness.Rollback(b.ctx, tx))
			if errors.Is(err, contract.ErrRetryTx) || errors.Is(err, contract.ErrInProgress) {
				continue
			}
			return q, err
		}
		require.NoError(b, b.Harness.Commit(b.ctx, tx))
		return q, nil
	}
}

// receiver is whoever takes published facts.
type receiver struct {
	mu    sync.Mutex
	facts []broker.QueuedFact
	fail  func(broker.QueuedFact) error
}

func (r *receiver) take(_ context.Context, q broker.QueuedFact) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(q); err != nil {
			return err
		}
	}
	r.facts = append(r.facts, q)
	return nil
}

// ids are the facts in the order in which each was seen first.
func (r *receiver) ids() (first []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, q := range r.facts {
		if !slices.Contains(first, q.ID) {
			first = append(first, q.ID)
		}
	}
	return first
}

func factsInOrder[TTx any](b *bench[TTx]) {
	var want []string
	for i := range 5 {
		id := fmt.Sprint("f-", i)
		q, err := b.queue(fact(id), true)
		require.NoError(b, err)
		assert.EqualValues(b, i+1, q.Ordinal)
		_, err = b.queue(fact("undone-"+id), false)
		require.NoError(b, err)
		want = append(want, id)
	}
	_, err := b.LookupFact(b.ctx, firmA, source, "undone-f-0")
	require.ErrorIs(b, err, broker.ErrNoFact)
	var r receiver
	n, err := b.PublishFacts(b.ctx, firmA, source, r.take)
	require.NoError(b, err)
	assert.Equal(b, 5, n)
	assert.Equal(b, want, r.ids())
	assert.Equal(b, fact("f-3"), r.facts[3].Fact)
	n, err = b.PublishFacts(b.ctx, firmA, source, r.take)
	require.NoError(b, err)
	assert.Zero(b, n, "each once, without a crash")
	q, err := b.LookupFact(b.ctx, firmA, source, "f-4")
	require.NoError(b, err)
	assert.True(b, q.Published)
}

func factsOnce[TTx any](b *bench[TTx]) {
	first, err := b.queue(fact("f"), true)
	require.NoError(b, err)
	again, err := b.queue(fact("f"), true)
	require.NoError(b, err)
	assert.Equal(b, first, again, "the original receipt")
	other := fact("f")
	other.Content = []byte("other")
	_, err = b.queue(other, true)
	require.ErrorIs(b, err, contract.ErrKeyReused)
	other = fact("f")
	other.Kind = "other"
	_, err = b.queue(other, true)
	require.ErrorIs(b, err, contract.ErrKeyReused)
	var r receiver
	n, err := b.PublishFacts(b.ctx, firmA, source, r.take)
	require.NoError(b, err)
	assert.Equal(b, 1, n)
	assert.Equal(b, fact("f"), r.facts[0].Fact, "the first one is kept")
	again, err = b.queue(fact("f"), true)
	require.NoError(b, err)
	assert.True(b, again.Published)
	_, err = b.queue(other, true)
	require.ErrorIs(b, err, contract.ErrKeyReused, "also once it is published")
	bad := fact("f")
	bad.Content = make([]byte, broker.MaxFact+1)
	_, err = b.queue(bad, true)
	require.ErrorIs(b, err, contract.ErrInvalid)
}

func factsWaitForEachOther[TTx any](b *bench[TTx]) {
	for i := range 3 {
		_, err := b.queue(fact(fmt.Sprint("f-", i)), true)
		require.NoError(b, err)
	}
	down := errors.New("the queue is down")
	r := receiver{fail: func(q broker.QueuedFact) error {
		if q.Ordinal == 2 {
			return down
		}
		return nil
	}}
	for range 2 {
		_, err := b.PublishFacts(b.ctx, firmA, source, r.take)
		require.ErrorIs(b, err, down)
	}
	assert.Equal(b, []string{"f-0"}, r.ids(), "nothing overtakes")
	q, err := b.LookupFact(b.ctx, firmA, source, "f-1")
	require.NoError(b, err)
	assert.False(b, q.Published)
	r.fail = nil
	_, err = b.PublishFacts(b.ctx, firmA, source, func(ctx context.Context, q broker.QueuedFact) error {
		_ = r.take(ctx, q)
		panic("after it was handed on")
	})
	require.Error(b, err)
	n, err := b.PublishFacts(b.ctx, firmA, source, r.take)
	require.NoError(b, err)
	assert.Equal(b, 2, n)
	assert.Equal(b, []string{"f-0", "f-1", "f-2"}, r.ids())
	assert.Len(b, r.facts, 4, "f-1 twice: at least once")
}

func factsConcurrently[TTx any](b *bench[TTx]) {
	const writers, each = 4, 6
	var r receiver
	var wg, publishers sync.WaitGroup
	ctx, stop := context.WithCancel(b.ctx)
	for range 2 {
		publishers.Go(func() {
			err := b.KeepPublishing(ctx, broker.Publishing{Tenant: firmA, Source: source, Publish: r.take, Idle: time.Millisecond})
			assert.ErrorIs(b, err, context.Canceled)
		})
	}
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				_, err := b.queue(fact(fmt.Sprintf("%d-%d", w, i)), true)
				assert.NoError(b, err)
			}
		})
	}
	wg.Wait()
	for len(r.ids()) < writers*each && b.ctx.Err() == nil {
		time.Sleep(time.Millisecond)
	}
	stop()
	publishers.Wait()
	var last int64
	seen := map[string]bool{}
	next := map[byte]int{}
	for _, q := range r.facts {
		if seen[q.ID] {
			continue
		}
		seen[q.ID] = true
		assert.Greater(b, q.Ordinal, last, "first times are in order")
		last = q.Ordinal
		assert.Equal(b, fmt.Sprintf("%c-%d", q.ID[0], next[q.ID[0]]), q.ID, "a writer's own order")
		next[q.ID[0]]++
	}
	assert.Len(b, seen, writers*each)
	open, err := b.ListUnresolved(b.ctx, broker.Page{Tenant: firmA})
	require.NoError(b, err)
	assert.Empty(b, open, "facts are no operations")
}

// factCases are run on every store.
func factCases[TTx any]() map[string]func(*bench[TTx]) {
	return map[string]func(*bench[TTx]){
		"R100 R101 facts are published in order, if their transaction commits": factsInOrder[TTx],
		"R94 R95 R96 R102 a fact is queued once":                               factsOnce[TTx],
		"R100 R105 what is not confirmed is tried again before the next":       factsWaitForEachOther[TTx],
		"R100 writers and publishers at once":                                  factsConcurrently[TTx],
	}
}

// R100: whichever of the publisher's own calls is lost, nothing is lost and nothing overtakes.
func TestPublisherLosesStoreCalls(t *testing.T) {
	for _, after := range []bool{false, true} {
		for n := 1; n < 40; n++ {
			h := memory()
			f := &flaky{fail: n, after: after, down: n % 2}
			calm := newBench(t, h, "facts", nil)
			f.Store = h.Store
			h.Store = flakyTx{f}
			b := newBench[*memstore.Tx](t, h, "facts", nil)
			for i := range 3 {
				_, err := calm.queue(fact(fmt.Sprint("f-", i)), true)
				require.NoError(t, err)
			}
			var r receiver
			for range 4 {
				_, err := b.PublishFacts(b.ctx, firmA, source, r.take)
				if err == nil {
					break
				}
				require.ErrorIs(t, err, contract.ErrUnavailable)
			}
			require.Equal(t, []string{"f-0", "f-1", "f-2"}, r.ids())
			q, err := calm.LookupFact(b.ctx, firmA, source, "f-2")
			require.NoError(t, err)
			require.True(t, q.Published)
		}
	}
}

var _ = storetest.Harness[*memstore.Tx]{}
