package main

import (
	"bytes"
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/broker"
	"github.com/confirmexec/confirmexec/contract"
)

// scenario is one thing that can happen between a confirm and its effect.
type scenario struct {
	name, title string
	want        expectation
	run         func(ctx context.Context, s *stage) error // an error is a step that could not be made
}

var (
	applied1 = contract.Tally{Applied: 1}
	none     = contract.Tally{}
)

// scenarios are in the order of the walk.
var scenarios = []scenario{
	{"first-confirm", "a first confirm on a fresh surface", expectation{"executed", 1, applied1, false}, firstConfirm},
	{"second-confirm", "the same key again replays", expectation{"replayed", 1, applied1, true}, secondConfirm},
	{"double-tap", "a second confirm while the first still runs", expectation{"replayed", 1, applied1, true}, doubleTap},
	{"drifted-surface", "the surface changed since the proposal", expectation{"stale", 0, none, false}, driftedSurface},
	{"lost-reply", "a retry after the write moved the surface", expectation{"replayed", 1, applied1, true}, lostReply},
	{"crash", "killed between the claim and its completion",
		expectation{"ambiguous", 1, contract.Tally{Ambiguous: 1}, true}, timed(crash)},
	{"batch", "three items, and one of them fails",
		expectation{"executed", 3, contract.Tally{Applied: 2, Failed: 1}, false}, batch},
	{"same-key-other-content", "a confirmation that was changed on its way",
		expectation{"key_reused", 1, none, false}, sameKeyOtherContent},
	{"never-minted", "a key that the server did not mint", expectation{"not_minted", 0, none, false}, neverMinted},
	{"other-firm", "another firm confirms the same key", expectation{"executed", 2, applied1, false}, otherFirm},
	{"transaction", "effects in the same database",
		expectation{"executed", 0, contract.Tally{Applied: 2}, false}, transaction},
	{"cancel", "cancelled before a late confirm",
		expectation{"cancelled", 0, contract.Tally{Skipped: 1}, true}, cancelled},
	{"resolve", "found by reading after a crash", expectation{"replayed", 1, applied1, true}, timed(resolved)},
	{"resolve-absent", "found absent after a crash, for good",
		expectation{"replayed", 0, contract.Tally{Failed: 1}, true}, timed(resolvedAbsent)},
	{"paused-executor", "a stopped process wakes up after the verdict",
		expectation{"replayed", 1, contract.Tally{Failed: 1}, true}, timed(pausedExecutor)},
	{"per-item", "killed between two items of a batch in the database",
		expectation{"replayed", 0, contract.Tally{Applied: 1, Skipped: 2}, true}, timed(perItem)},
	{"lost-commit", "the acknowledgement of a COMMIT is lost",
		expectation{"executed", 0, contract.Tally{Applied: 2}, false}, lostCommit},
	{"purge", "the payload is forgotten, the key is not", expectation{"pruned", 1, none, true}, purged},
}

func firstConfirm(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	s.say(`The assistant proposes to add the forum NCLT Mumbai to the surface %s, which is at %s. Counsel of firm A
		confirms. The surface has not changed, so the broker claims the key and the executor calls the registry, once.`,
		c.SurfaceKey, c.ContractVersion)
	s.decide(s.confirm(ctx, s.broker, c))
	s.expectPhase(ctx, c, broker.Completed)
	return nil
}

func secondConfirm(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	s.say(`Counsel confirms, and confirms the same again. The second time nothing runs: the stored outcomes are read back,
		byte for byte.`)
	first := s.confirm(ctx, s.broker, c)
	s.expectWord(first, "executed", "the first confirm")
	second := s.confirm(ctx, s.broker, c)
	s.decide(second)
	s.expectSameBytes(first, second)
	return nil
}

// expectSameBytes reports a difference unless a replay tells the same outcomes as the first run, byte for byte.
func (s *stage) expectSameBytes(first, replay told) {
	if first.result == nil || replay.result == nil {
		s.expect(false, "there is no result to compare: %v, %v", first.err, replay.err)
		return
	}
	a, b := contract.EncodeOutcomes(first.result.Outcomes), contract.EncodeOutcomes(replay.result.Outcomes)
	s.expect(bytes.Equal(a, b), "the replayed outcomes are %s, the first ones %s", b, a)
}

func doubleTap(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	at := place{c.IdempotencyKey, mumbai}
	if err := s.registry.setFault(ctx, at, fault{Hold: true}); err != nil {
		return err
	}
	first := s.tap(ctx, s.broker, c)
	if err := s.registry.awaitHeld(ctx, at); err != nil {
		return err
	}
	second := s.tap(ctx, s.broker, c)
	third := s.confirm(ctx, s.impatient, c)
	s.expectWord(third, "in_progress", "a broker that does not wait")
	if err := s.registry.release(ctx, at); err != nil {
		return err
	}
	one, two := <-first, <-second
	s.say(`Counsel taps Confirm while the first confirm still waits for the registry. The second waits for the first and
		gets its outcomes. A broker that does not wait (ReplayWait negative) answers %s instead.`, third.word())
	s.expectWord(one, "executed", "the first confirm")
	s.expectSameBytes(one, two)
	s.decide(two)
	return nil
}

// tap confirms at the same time as something else.
func (s *stage) tap(ctx context.Context, b confirmer, c contract.OperationConfirmation) <-chan told {
	done := make(chan told, 1)
	go func() { done <- s.confirm(ctx, b, c) }()
	return done
}

func driftedSurface(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	if err := s.registry.move(ctx); err != nil {
		return err
	}
	t := s.confirm(ctx, s.broker, c)
	s.decide(t)
	conflict, ok := errors.AsType[*contract.ConflictError](t.err)
	s.expect(ok && len(conflict.Drift) == 1, "the error is no *contract.ConflictError that names the drift: %v", t.err)
	s.expectPhase(ctx, c, broker.Proposed)
	s.say(`The surface changes between the proposal and the confirm. The confirm is refused with a typed error that names
		what drifted. Nothing was claimed: Lookup still says %q.`, s.phase(ctx, c))
	return nil
}

func lostReply(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	at := place{c.IdempotencyKey, mumbai}
	if err := s.registry.setFault(ctx, at, fault{Move: true, Hold: true, Drop: true}); err != nil {
		return err
	}
	browser, hangUp := context.WithCancel(ctx)
	defer hangUp()
	first := s.tap(browser, s.broker, c)
	if err := s.registry.awaitHeld(ctx, at); err != nil {
		return err
	}
	hangUp() // nobody reads the first reply
	if err := s.registry.release(ctx, at); err != nil {
		return err
	}
	<-first
	now, err := s.registry.surface(ctx)
	if err != nil {
		return err
	}
	s.expect(now.ContractVersion != c.ContractVersion, "the write did not move the surface")
	s.decide(s.confirm(ctx, s.broker, c))
	read := s.told.result != nil && s.told.result.Outcomes[0].Detail == foundByReading
	s.expect(read, "the executor did not find the forum by reading")
	s.say(`Two replies are lost. The registry adds the forum, moves the surface from %s to %s, and drops the connection:
		the executor does not send again but reads, finds the forum, and says applied. Counsel's browser had hung up
		meanwhile. Counsel confirms again, with a confirmation that is for %[1]s: it is replayed, not called stale.`,
		c.ContractVersion, now.ContractVersion)
	return nil
}

func batch(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai, chennai, delhi)
	if err != nil {
		return err
	}
	if err := s.registry.setFault(ctx, place{c.IdempotencyKey, chennai}, fault{Refuse: true}); err != nil {
		return err
	}
	s.say(`Counsel confirms three forums at once, and the registry refuses one of them. The refusal is definite, so that
		item is failed and not ambiguous, and the other two are applied. Board and prose are made of the same result.`)
	s.decide(s.confirm(ctx, s.broker, c))
	return nil
}

func sameKeyOtherContent(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	edited := proposal(contract.CurrentSurfaceState{SurfaceKey: c.SurfaceKey, ContractVersion: c.ContractVersion}, delhi)
	early := s.confirm(ctx, s.broker, edited.Confirmation(c.IdempotencyKey))
	s.expectWord(early, "key_reused", "other content before the first confirm")
	s.expectWord(s.confirm(ctx, s.broker, c), "executed", "the confirm as proposed")
	s.decide(s.confirm(ctx, s.broker, edited.Confirmation(c.IdempotencyKey)))
	s.say(`Mumbai was proposed; a confirmation arrives that carries the same key and says Delhi. It is a conflict and runs
		nothing, before the key is confirmed and after. The one call is that of the confirm as it was proposed.`)
	return nil
}

func neverMinted(ctx context.Context, s *stage) error {
	forged, err := s.forge(ctx)
	if err != nil {
		return err
	}
	s.say(`A client makes up a key of its own. The server never minted it, so nothing runs and nothing is stored.`)
	s.decide(s.confirm(ctx, s.broker, forged))
	return nil
}

// forge is a confirmation that nobody proposed.
func (s *stage) forge(ctx context.Context) (contract.OperationConfirmation, error) {
	now, err := s.registry.surface(ctx)
	if err != nil {
		return contract.OperationConfirmation{}, err
	}
	key, err := broker.MintKey()
	s.keys[key] = true
	return proposal(now, mumbai).Confirmation(key), err
}

func otherFirm(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	forged, err := s.forge(ctx)
	if err != nil {
		return err
	}
	s.expectWord(s.confirm(ctx, s.broker, c), "executed", "firm A's confirm")
	refused, unknown := s.confirmFor(ctx, s.broker, firmB, c), s.confirmFor(ctx, s.broker, firmB, forged)
	s.expectWord(refused, "not_minted", "firm B's confirm")
	same := refused.err != nil && unknown.err != nil && refused.err.Error() == unknown.err.Error()
	s.expect(same, "firm B can tell firm A's key from a made-up one: %v, %v", refused.err, unknown.err)
	s.decide(s.confirmFor(ctx, s.acceptsAny, firmB, c))
	s.say(`Firm A has confirmed a key. Firm B confirms the same key and is answered %s, word for word as for a key that
		nobody minted. A broker that accepts keys from elsewhere (AcceptUnmintedKeys) runs it as firm B's own first run:
		one call for each firm.`, refused.word())
	return nil
}

// transaction does not use the registry: its effects are rows in the claims' own database.
func transaction(ctx context.Context, s *stage) error {
	c, err := s.proposeOn(ctx, firmA, matter, mumbai, delhi)
	if err != nil {
		return err
	}
	req := broker.Request{Tenant: firmA, Confirmation: c}
	_, err = s.db.executeTx(ctx, req, false)
	s.expect(err == nil, "the transaction that is rolled back: %v", err)
	s.expectPhase(ctx, c, broker.Proposed)
	undone, err := s.db.forums(ctx, c.IdempotencyKey)
	if err != nil {
		return err
	}
	res, err := s.db.executeTx(ctx, req, true)
	s.decide(told{res, err})
	s.expectPhase(ctx, c, broker.Completed)
	kept, err := s.db.forums(ctx, c.IdempotencyKey)
	s.expect(undone == 0 && kept == 2, "%d forums after the rollback and %d after the commit, not 0 and 2", undone, kept)
	s.say(`The effects are rows in the database that holds the claims, so this one does not use the registry, and its
		ledger has no call. Counsel's confirm runs in a transaction that rolls back: %d forums, and no claim. Then in
		one that commits: %d forums, and the claim, together.`, undone, kept)
	return err
}

func cancelled(ctx context.Context, s *stage) error {
	c, err := s.propose(ctx, mumbai)
	if err != nil {
		return err
	}
	if _, err := s.broker.Cancel(ctx, firmA, c.IdempotencyKey); err != nil {
		return err
	}
	s.say(`Counsel changes their mind and cancels. A confirm that was still on its way arrives late: it runs nothing, now
		and for ever.`)
	s.decide(s.confirm(ctx, s.broker, c))
	return nil
}
