package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// timed is a scenario in which things must happen before or after the end of a short lease. On a machine that is too busy for
// that it proves nothing: it is made again with a new key and, up to a point, a longer lease.
func timed(once func(ctx context.Context, s *stage, lease time.Duration) error) func(context.Context, *stage) error {
	return func(ctx context.Context, s *stage) error {
		const tries, longest = 6, 8 * time.Second
		fresh := s.report
		for try := 1; ; try++ {
			s.report, s.keys = fresh, map[uuid.UUID]bool{}
			err := once(ctx, s, min(time.Second<<(try-1), longest))
			if !errors.Is(err, errLate) || try == tries {
				return err
			}
		}
	}
}

var errLate = errors.New("this machine was too busy for what was to happen before or after the end of the lease")

// crash kills a process between its claim and the completion.
func crash(ctx context.Context, s *stage, lease time.Duration) error {
	c, killed, err := s.killWhileHeld(ctx, lease)
	if err != nil {
		return err
	}
	within := s.confirm(ctx, s.impatient, c)
	if within.word() == "ambiguous" {
		return errLate
	}
	s.expectWord(within, "in_progress", "a confirm within the lease")
	if err := s.awaitUnresolved(ctx, c); err != nil {
		return err
	}
	s.decide(s.confirm(ctx, s.broker, c))
	s.expect(s.told.result != nil && s.told.result.Recovery() != nil, "there is no recovery instruction")
	s.say(`The service is a process of its own this time. It has claimed the key and waits for the registry, which has
		added the forum but not answered yet, when it is killed (%s). Within the lease of %s a confirm is answered %s.
		After it the broker does not know whether the forum was added, so it says so, and does not call again: the
		ledger shows the one call.`, killed, lease, within.word())
	return nil
}

// killWhileHeld has a process confirm the forum Mumbai, kills it when the registry has added the forum and not answered yet,
// and says how it died.
func (s *stage) killWhileHeld(ctx context.Context, lease time.Duration) (
	c contract.OperationConfirmation, killed string, err error,
) {
	if c, err = s.propose(ctx, mumbai); err != nil {
		return c, "", err
	}
	at := place{c.IdempotencyKey, mumbai}
	if err := s.registry.setFault(ctx, at, fault{Hold: true}); err != nil {
		return c, "", err
	}
	p, err := startChild(ctx, s.order(c, lease))
	if err != nil {
		return c, "", err
	}
	defer p.end()
	if err := s.registry.awaitHeld(p.alive, at); err != nil {
		if p.alive.Err() == nil {
			return c, "", err
		}
		return c, "", p.endedEarly()
	}
	killed, err = s.kill(p)
	return c, killed, err
}

// killBeforeItem has a process confirm as ordered, and kills it when it has come to the item.
func (s *stage) killBeforeItem(ctx context.Context, order confirmOrder, item string) (killed string, err error) {
	order.PauseBefore = item
	p, err := startChild(ctx, order)
	if err != nil {
		return "", err
	}
	defer p.end()
	if err := p.await(paused(item)); err != nil {
		return "", err
	}
	return s.kill(p)
}

// order is for a process that confirms c for firm A.
func (s *stage) order(c contract.OperationConfirmation, lease time.Duration) confirmOrder {
	return confirmOrder{
		Database: s.db.url(), Registry: s.registry.url, Scenario: s.name, Firm: firmA, Lease: lease, Confirmation: c,
	}
}

// pollEvery is how often the end of a lease is looked for.
const pollEvery = 50 * time.Millisecond

// awaitUnresolved polls until the lease of a claim that nobody completes is over. Only the database knows when that is.
func (s *stage) awaitUnresolved(ctx context.Context, c contract.OperationConfirmation) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		st, err := s.broker.Lookup(ctx, firmA, c.IdempotencyKey)
		switch {
		case err != nil:
			return fmt.Errorf("look the key up: %w", err)
		case st.Phase == broker.Unresolved:
			return nil
		case st.Phase == broker.Completed: // by the process, before it was interrupted
			return errLate
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the key is still %s: %w", st.Phase, ctx.Err())
		case <-tick.C:
		}
	}
}
