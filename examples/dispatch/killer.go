package dispatch

import (
	"context"
	"os"
	"sync"

	"github.com/confirmexec/confirmexec/store"
)

// killer ends its own process by SIGKILL right before or right after a commit, so that a test can have a crash between any two. Its
// zero value counts nothing.
type killer struct {
	mu    sync.Mutex
	armed bool
	at    int
	when  string
	count int
}

// The two sides of a commit.
const (
	before = "before"
	after  = "after"
)

// arm begins to count commits, and ends the process at the nth.
func (k *killer) arm(at int, when string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.armed, k.at, k.when, k.count = true, at, when, 0
}

// committing makes a commit and counts it.
func (k *killer) committing(commit func() error) error {
	k.mu.Lock()
	mine := false
	if k.armed {
		k.count++
		mine = k.count == k.at
	}
	when := k.when
	k.mu.Unlock()
	if mine && when == before {
		die()
	}
	err := commit()
	if mine && when == after {
		die()
	}
	return err
}

// commits tells how many there were since it was armed.
func (k *killer) commits() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.count
}

// die does not return: nothing is flushed, closed or told.
func die() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {}
}

// killable is a store whose every commit the killer counts.
type killable[TTx any] struct {
	store.Store[TTx]

	killer *killer
}

func (s killable[TTx]) Own() store.Claims { return killableClaims{s.Store.Own(), s.killer} }

func (s killable[TTx]) Keep() store.Keeper { return killableKeeper{s.Store.Keep(), s.killer} }

func (s killable[TTx]) Commit(ctx context.Context, tx TTx, c store.Closing) error {
	return s.killer.committing(func() error { return s.Store.Commit(ctx, tx, c) })
}

// killableClaims are those of the store's own transactions: each write is one.
type killableClaims struct {
	store.Claims

	killer *killer
}

func (c killableClaims) Claim(ctx context.Context, p store.ClaimParams) (s store.Standing, err error) {
	err = c.killer.committing(func() (err error) { s, err = c.Claims.Claim(ctx, p); return err })
	return s, err
}

func (c killableClaims) Progress(ctx context.Context, p store.ProgressParams) error {
	return c.killer.committing(func() error { return c.Claims.Progress(ctx, p) })
}

func (c killableClaims) Complete(ctx context.Context, p store.CompleteParams) error {
	return c.killer.committing(func() error { return c.Claims.Complete(ctx, p) })
}

type killableKeeper struct {
	store.Keeper

	killer *killer
}

func (k killableKeeper) Seize(ctx context.Context, p store.SeizeParams) (s store.Standing, err error) {
	err = k.killer.committing(func() (err error) { s, err = k.Keeper.Seize(ctx, p); return err })
	return s, err
}

func (k killableKeeper) Settle(ctx context.Context, p store.CompleteParams) error {
	return k.killer.committing(func() error { return k.Keeper.Settle(ctx, p) })
}

func (k killableKeeper) Observe(ctx context.Context, p store.ObserveParams) error {
	return k.killer.committing(func() error { return k.Keeper.Observe(ctx, p) })
}
