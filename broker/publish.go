package broker

import (
	"context"
	"errors"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Publisher hands a fact on, and returns nil once whoever takes it has confirmed that it has it durably. It may be called again for
// a fact that it has handed on, after a crash or beside another process: receivers know a fact again by its ID.
type Publisher func(ctx context.Context, f QueuedFact) error

// PublishFacts publishes what is queued of a source, in order, until nothing is left, and tells how many facts it was confirmed.
// It stops at the first one that publish does not confirm, since the ones after it must not come before it, and returns that error.
// Any number of processes may publish the same source: then receivers see some facts twice, and none out of order for the first
// time (R100).
//
// Errors besides publish's: *[contract.InvalidError]; [contract.ErrDenied]; [contract.ErrUnavailable]. Call it again after each.
func (b *Broker[TTx]) PublishFacts(ctx context.Context, tenant, source string, publish Publisher) (published int, err error) {
	defer func(start time.Time) { b.observeFact(ctx, "publish_facts", "published", start, err) }(time.Now())
	if err := validPublishing(tenant, source, publish); err != nil {
		return 0, err
	}
	if err := b.authorize(ctx, "publish_facts", store.ID{Tenant: tenant}); err != nil {
		return 0, err
	}
	for {
		if err := ctx.Err(); err != nil {
			return published, err
		}
		done, queued, err := b.cursor(ctx, tenant, source)
		if err != nil || done >= queued {
			return published, fromStore(err)
		}
		confirmed, err := b.publishNext(ctx, tenant, source, done, publish)
		if err != nil {
			return published, err
		}
		if confirmed {
			published++
		}
	}
}

func validPublishing(tenant, source string, publish Publisher) error {
	if publish == nil {
		return &contract.InvalidError{Path: "/publisher", Problem: "must not be nil"}
	}
	return Fact{Tenant: tenant, Source: source, ID: "any", Kind: "any"}.validate()
}

// cursor tells how many of a source's facts are published, and how many are queued.
func (b *Broker[TTx]) cursor(ctx context.Context, tenant, source string) (published, queued int64, err error) {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	tx, _, err := b.store.Begin(ctx, store.Opening{ID: store.ID{Tenant: tenant}})
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = b.store.Rollback(ctx, tx) }()
	values := b.store.Values(tx)
	done, err := values.Load(ctx, lastPublished(tenant, source))
	if err != nil {
		return 0, 0, err
	}
	last, err := values.Load(ctx, lastQueued(tenant, source))
	return done.Revision, last.Revision, err
}

// publishNext publishes the fact after the cursor and moves that, unless somebody else was quicker. A place that was counted and is
// not there is passed by: its transaction was committed in spite of ErrRetryTx.
func (b *Broker[TTx]) publishNext(ctx context.Context, tenant, source string, done int64, publish Publisher) (confirmed bool, err error) {
	q := QueuedFact{Fact: Fact{Tenant: tenant, Source: source}, Ordinal: done + 1}
	lookupCtx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Own().Lookup(lookupCtx, store.LookupParams{ID: placeID(tenant, source, q.Ordinal), Content: true})
	if err != nil {
		return false, fromStore(err)
	}
	if s.Claim != nil && !s.Claim.Completed {
		var doc factDoc
		if err := json.Unmarshal(s.Claim.Content, &doc, json.RejectUnknownMembers(true)); err != nil {
			return false, unreadable(err)
		}
		q.ID, q.Kind, q.Content = doc.ID, doc.Kind, doc.Content
		if err := guarded(func() error { return publish(ctx, q) }); err != nil {
			return false, err
		}
		confirmed = true
	}
	moved, err := b.moveCursor(ctx, q, s.Claim, done)
	return confirmed && moved, err
}

// moveCursor records that q is published: the cursor by compare-and-set, and with it the fact's two claims. Another publisher may
// have done it: that is no error, and the cursor is read again.
func (b *Broker[TTx]) moveCursor(ctx context.Context, q QueuedFact, place *store.Claim, done int64) (moved bool, err error) {
	ctx, cancel := b.detached(ctx)
	defer cancel()
	tx, _, err := b.store.Begin(ctx, store.Opening{ID: store.ID{Tenant: q.Tenant}})
	if err != nil {
		return false, fromStore(err)
	}
	_, err = b.store.Values(tx).Swap(ctx, store.SwapParams{ValueID: lastPublished(q.Tenant, q.Source), Revision: done, Content: counted})
	if err == nil && place != nil && !place.Completed {
		for _, id := range []store.ID{placeID(q.Tenant, q.Source, q.Ordinal), factID(q.Fact)} {
			held := store.Fenced{ID: id, Attempt: place.Attempt, Fence: place.Fence}
			if err = b.store.In(tx).Complete(ctx, store.CompleteParams{Fenced: held, Outcomes: counted}); err != nil {
				break
			}
		}
	}
	if err != nil {
		_ = b.store.Rollback(ctx, tx)
		if errors.Is(err, store.ErrRevision) || errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrRetryTx) {
			return false, nil
		}
		return false, fromStore(err)
	}
	if err := b.store.Commit(ctx, tx, store.Closing{}); err != nil && !errors.Is(err, store.ErrRetryTx) {
		return false, fromStore(err)
	}
	return err == nil, nil
}

// Publishing is what KeepPublishing needs. Tenant, Source and Publish are required.
type Publishing struct {
	Tenant, Source string
	Publish        Publisher
	// Wake, if set, is received from to publish at once, for example after a commit that queued a fact.
	Wake <-chan struct{}
	// Idle is the longest time until the outbox is looked at again. Default 1 second.
	Idle time.Duration
	// BackOff is the longest time until a fact is tried again that was not confirmed; the first times are shorter, and random.
	// Default 1 minute.
	BackOff time.Duration
}

// KeepPublishing publishes a source until ctx ends, and returns its error. What is not confirmed is tried again, later each time;
// nothing is lost or passed by. Errors on the way are told to Config.Observer and Config.Logger. It returns before only with an
// *[contract.InvalidError] about p.
func (b *Broker[TTx]) KeepPublishing(ctx context.Context, p Publishing) error {
	if p.Idle <= 0 {
		p.Idle = time.Second
	}
	if p.BackOff <= 0 {
		p.BackOff = time.Minute
	}
	if err := validPublishing(p.Tenant, p.Source, p.Publish); err != nil {
		return err
	}
	for failures := 0; ; {
		n, err := b.PublishFacts(ctx, p.Tenant, p.Source, p.Publish)
		if failures++; err == nil || n > 0 {
			failures = 0
		}
		pause, wake := p.Idle, p.Wake
		if err != nil { // a wake-up says that there is more, not that what failed would not fail again
			pause, wake = jitter(min(p.BackOff, 50*time.Millisecond<<min(failures, 20))), nil
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-timer.C:
		case _, open := <-wake:
			timer.Stop()
			if !open {
				p.Wake = nil
			}
		}
	}
}
