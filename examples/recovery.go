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

// resolve settles the key for firm A by reading.
func (s *stage) resolve(ctx context.Context, c contract.OperationConfirmation, read broker.StatusReader) told {
	res, err := s.broker.Resolve(ctx, broker.Resolution{Tenant: firmA, Key: c.IdempotencyKey, By: onCall}, read)
	return told{res, err}
}

// expectVerdict reports a difference unless Resolve gave the one item this verdict, and says for whom.
func (s *stage) expectVerdict(t told, want contract.Reason, provisional bool) {
	if t.result == nil || len(t.result.Outcomes) != 1 {
		s.expect(false, "Resolve gave no verdict: %v", t.err)
		return
	}
	o := t.result.Outcomes[0]
	s.expect(o.Reason == want && o.Provisional == provisional && o.By == onCall && o.Detail != "",
		"the verdict is %+v, not %s, provisional %t, by %s and with evidence", o, want, provisional, onCall)
}

// resolved kills a process that has had its effect and finds that by reading.
func resolved(ctx context.Context, s *stage, lease time.Duration) error {
	c, killed, err := s.killWhileHeld(ctx, lease)
	if err != nil {
		return err
	}
	if err := s.awaitUnresolved(ctx, c); err != nil {
		return err
	}
	s.expectWord(s.confirm(ctx, s.broker, c), "ambiguous", "a confirm before it is resolved")
	verdict := s.resolve(ctx, c, s.registry.reader())
	s.expectVerdict(verdict, contract.ReasonFoundApplied, false)
	s.decide(s.confirm(ctx, s.broker, c))
	s.expectSameBytes(verdict, s.told)
	s.say(`As before: the process that confirms is killed (%s) when the registry has added the forum and not said so, and
		the lease is over. Now whoever is on call resolves the key. Resolve runs no executor. It asks the registry what it
		has under the item's key, finds the forum, and stores that verdict with its evidence and with who stands for it.
		Counsel confirms again and is told the verdict.`, killed)
	return nil
}

// resolvedAbsent kills a process before its effect, and makes sure that it never comes.
func resolvedAbsent(ctx context.Context, s *stage, lease time.Duration) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	killed, err := s.killBeforeItem(ctx, s.order(c, lease), mumbai)
	if err != nil {
		return err
	}
	if err := s.awaitUnresolved(ctx, c); err != nil {
		return err
	}
	var asked broker.Item
	seal := s.registry.sealer()
	verdict := s.resolve(ctx, c, func(ctx context.Context, it broker.Item) (broker.Verdict, error) {
		asked = it
		return seal(ctx, it)
	})
	s.expectVerdict(verdict, contract.ReasonFoundAbsent, false)
	late := s.name + "-late" // so that it is not counted as a call of the executor, which was never made
	_, refusal := s.registry.executor(late, c.IdempotencyKey)(ctx, asked)
	f, ok := contract.FailureOf(refusal)
	s.expect(ok && f.Reason == reasonSealed, "a late call is not refused: %v", refusal)
	s.decide(s.confirm(ctx, s.broker, c))
	s.say(`This time the process is killed (%s) when it has claimed the key and not called the registry yet. From outside
		that looks the same. The reader has the registry seal the item's key and asks in the same step what came before:
		nothing. A call that is still on its way would be refused from now on, so the verdict is final; the walk makes
		such a call, and is told: %s. Counsel confirms again and is told that nothing happened. To propose the same
		again is safe.`, killed, refusal)
	return nil
}

// pausedExecutor stops a process before its effect and lets it go on after the verdict.
func pausedExecutor(ctx context.Context, s *stage, lease time.Duration) error {
	if !canStop {
		s.skipped = "this system cannot stop and continue a process (SIGSTOP, SIGCONT)"
		return nil
	}
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	order := s.order(c, lease)
	order.PauseBefore = mumbai
	p, err := startChild(ctx, order)
	if err != nil {
		return err
	}
	defer p.end()
	if err := p.await(paused(mumbai)); err != nil {
		return err
	}
	if err := stopProcess(p.cmd.Process); err != nil {
		return fmt.Errorf("stop the process that confirms: %w", err)
	}
	if err := s.awaitUnresolved(ctx, c); err != nil {
		return err
	}
	verdict := s.resolve(ctx, c, s.registry.reader())
	s.expectVerdict(verdict, contract.ReasonFoundAbsent, true)
	if err := p.tell("go on"); err != nil {
		return fmt.Errorf("let the process that confirms go on: %w", err)
	}
	if err := continueProcess(p.cmd.Process); err != nil {
		return fmt.Errorf("continue the process that confirms: %w", err)
	}
	if err := p.await(answered("fenced")); err != nil {
		return err
	}
	<-p.done
	if err := s.expectContested(ctx, c); err != nil {
		return err
	}
	s.decide(s.confirm(ctx, s.broker, c))
	s.expectSameBytes(verdict, s.told)
	s.say(`A process that confirms is stopped (SIGSTOP) when it is about to call the registry. Nobody can tell that from a
		crash. Its lease ends, and Resolve finds nothing. This registry is not asked to seal anything, so the verdict is
		provisional. Then the process is continued (SIGCONT), calls, and the registry adds the forum. Its own Execute
		answers fenced: it has lost the key. What it had to say contradicts the verdict. The verdict stands, the
		contradiction is kept beside it, and ListUnresolved names the key as contested.`)
	return nil
}

// expectContested reports a difference unless what the late executor said is on record. It returns errLate when the process was
// too slow after it had woken up: its broker gives an executor that has no time left only a moment to say what it did.
func (s *stage) expectContested(ctx context.Context, c contract.OperationConfirmation) error {
	st, err := s.broker.Lookup(ctx, firmA, c.IdempotencyKey)
	if err != nil {
		return fmt.Errorf("look the key up: %w", err)
	}
	if len(st.Contradictions) == 0 {
		return errLate
	}
	said := st.Contradictions[0].Said
	s.expect(said.State == contract.Applied, "the late executor said %s, not applied", said.State)
	s.note("contradiction", "an attempt that had lost the key said of %s: %s, %s", said.ItemID, said.State, said.Ref)
	listed, err := s.listed(ctx, c.IdempotencyKey)
	s.expect(listed.Contested, "ListUnresolved does not tell that the key is contested: %+v", listed)
	return err
}

// listed is what ListUnresolved tells of the key; its zero value when that is not in the list.
func (s *stage) listed(ctx context.Context, key uuid.UUID) (found broker.UnresolvedKey, err error) {
	for after := uuid.Nil; ; {
		page, err := s.broker.ListUnresolved(ctx, broker.Page{Tenant: firmA, After: after})
		if err != nil || len(page) == 0 {
			return found, err
		}
		for _, k := range page {
			if after = k.Key; k.Key == key {
				found = k
			}
		}
	}
}

// perItem kills a process between two items whose effects are in the database.
func perItem(ctx context.Context, s *stage, lease time.Duration) error {
	c, err := s.proposeOn(ctx, firmA, matter, mumbai, chennai, delhi)
	if err != nil {
		return err
	}
	order := s.order(c, lease)
	order.PerItem = true
	killed, err := s.killBeforeItem(ctx, order, chennai)
	if err != nil {
		return err
	}
	if err := s.awaitUnresolved(ctx, c); err != nil {
		return err
	}
	verdict := s.resolve(ctx, c, nil)
	res, err := s.db.executePerItem(ctx, nil, broker.Request{Tenant: firmA, Confirmation: c, Current: matter},
		func(broker.Item) error { return errors.New("an executor is called again") })
	s.decide(told{res, err})
	s.expectSameBytes(verdict, s.told)
	n, err := s.db.forums(ctx, c.IdempotencyKey)
	s.expect(n == 1, "there are %d forums, not 1", n)
	s.note("forums", "%d in the database", n)
	s.say(`Three forums, as rows in the database that holds the claims, one transaction for each: the row and the record of
		the item commit together. The process is killed (%s) between the first and the second. Resolve needs nobody to
		read anything: an item without a record was not applied, and under the raised fence never will be. The first is
		applied, the other two were not started, and the database has %d forum.`, killed, n)
	return err
}

// lostCommit loses the reply of a COMMIT.
func lostCommit(ctx context.Context, s *stage) (err error) {
	c, err := s.proposeOn(ctx, firmA, matter, mumbai, delhi)
	if err != nil {
		return err
	}
	req := broker.Request{Tenant: firmA, Confirmation: c}
	behind, err := s.db.behindRelay(ctx)
	if err != nil {
		return err
	}
	if behind == nil {
		s.say(`SQLite is in the process itself: there is no way to it on which the reply to a COMMIT could be lost. On
			PostgreSQL this scenario cuts the connection there. Here it shows ExecuteAtomic as it is: claim, two forums,
			outcomes and completion in one transaction that the broker begins and commits.`)
		res, err := s.db.executeAtomic(ctx, req)
		s.decide(told{res, err})
		return s.expectTwoForums(ctx, req)
	}
	defer func() { err = errors.Join(err, behind.close()) }()
	behind.relay.armed.Store(true)
	res, err := behind.executeAtomic(ctx, req)
	s.decide(told{res, err})
	lost := behind.relay.lost.Load()
	s.expect(lost == 1, "%d replies to a COMMIT were lost, not 1", lost)
	s.say(`Claim, two forums, outcomes and completion are one transaction, which the broker begins and commits. The way to
		PostgreSQL leads through a relay that hands on the COMMIT, reads that it was carried out, and cuts the connection
		before it says so: %d reply lost. The broker does not send the COMMIT again. It reads the claim on a fresh
		connection, finds its own, and answers as if nothing had been.`, lost)
	return s.expectTwoForums(ctx, req)
}

// expectTwoForums reports a difference unless the decisive answer is what stands, and its effects are there once.
func (s *stage) expectTwoForums(ctx context.Context, req broker.Request) error {
	s.expectPhase(ctx, req.Confirmation, broker.Completed)
	res, err := s.db.executeAtomic(ctx, req)
	again := told{res, err}
	s.expectWord(again, "replayed", "a second confirm")
	s.expectSameBytes(s.told, again)
	n, err := s.db.forums(ctx, req.Confirmation.IdempotencyKey)
	s.expect(n == 2, "there are %d forums, not 2", n)
	s.note("forums", "%d in the database", n)
	return err
}

// purged forgets what a key was about, in a firm of its own, since Purge takes whatever is due.
func purged(ctx context.Context, s *stage) error {
	now, err := s.registry.surface(ctx)
	if err != nil {
		return err
	}
	c, err := s.proposeOn(ctx, firmC, now, mumbai)
	if err != nil {
		return err
	}
	s.expectWord(s.confirmFor(ctx, s.broker, firmC, c), "executed", "the first confirm")
	n, err := s.purge(ctx, firmC)
	if err != nil {
		return err
	}
	st, err := s.broker.Lookup(ctx, firmC, c.IdempotencyKey)
	if err != nil {
		return fmt.Errorf("look the key up: %w", err)
	}
	s.expect(st.Phase == broker.Completed && len(st.Confirmation.Items) == 0,
		"the key is %s with %d items, not completed with none", st.Phase, len(st.Confirmation.Items))
	edited := proposal(now, delhi).Confirmation(c.IdempotencyKey)
	conflict := s.confirmFor(ctx, s.broker, firmC, edited)
	s.expectWord(conflict, "key_reused", "other content under the purged key")
	s.decide(s.confirmFor(ctx, s.broker, firmC, c))
	s.say(`A firm confirms. When the payload's retention is over (30 days by default, a millisecond here) Purge forgets
		content and outcomes, of %d key. The key itself stays for ever, with its digest: a confirm of the same is told that
		it was settled, and runs nothing; other content under the key is still answered %s.`, n, conflict.word())
	return nil
}

// purge forgets what is due, and tells of how many keys: of one at least.
func (s *stage) purge(ctx context.Context, firm string) (total int, err error) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		n, err := s.forgetful.Purge(ctx, broker.Page{Tenant: firm})
		if err != nil || n == 0 && total > 0 {
			return total, err
		}
		if total += n; n > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-tick.C:
		}
	}
}
