package toy_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/confirmexec/confirmexec/fencing/fencetest"
	"github.com/confirmexec/confirmexec/store/storetest"

	"sibling/toy"
)

// clock is the store's clock, which stands still until the suite advances it.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// The toy is a store that the broker can be trusted with.
func TestToy(t *testing.T) {
	storetest.Run(t, func(*testing.T) storetest.Harness[*toy.Tx] {
		c := &clock{now: time.Now()}
		s := toy.New(c.Now, time.Second)
		return storetest.Harness[*toy.Tx]{
			Store:    s,
			Begin:    s.BeginTx,
			Commit:   func(_ context.Context, tx *toy.Tx) error { return tx.Commit() },
			Rollback: func(_ context.Context, tx *toy.Tx) error { return tx.Rollback() },
			Effect: func(_ context.Context, tx *toy.Tx, name string) error {
				tx.Effect(name)
				return nil
			},
			Count:   func(_ context.Context, name string) (int, error) { return s.Effects(name), nil },
			Advance: c.Advance,
		}
	})
}

// The library's fencing keeps its rules on it, and so does its broker.
func TestFencing(t *testing.T) {
	fencetest.Run(t, func(*testing.T) fencetest.Harness[*toy.Tx] {
		return fencetest.Of(toy.New(time.Now, 2*time.Second), "firm-1")
	})
}
