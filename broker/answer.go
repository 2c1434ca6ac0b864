package broker

import (
	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// answer tells a confirm that does not run why, from how its key stands: the order of answers, the same on every path.
// Shape and limits come before it (newAttempt), the authoriser within it (judge), and the claim after it: only a key of
// which nothing here is true can be claimed.
//
// Replay comes before staleness on purpose. A successful write usually moves the surface's own version, so that a retry
// after a lost reply would otherwise be told "stale, nothing happened" about a write that landed (S19).
func (b *Broker[TTx]) answer(a *attempt, s store.Standing) (*contract.OperationResult, error) {
	if a.conflicts(s) {
		return nil, &contract.ConflictError{Failure: *contract.ErrKeyReused}
	}
	if s.Claim != nil {
		return told(a.Confirmation, s.Claim)
	}
	if s.Proposal == nil && !b.cfg.AcceptUnmintedKeys {
		return nil, contract.ErrNotMinted
	}
	if s.Proposal != nil && s.Proposal.Expired {
		return nil, contract.ErrExpired
	}
	if drift := contract.DriftOf(a.Confirmation, a.Current); len(drift) > 0 {
		return nil, &contract.ConflictError{Failure: *contract.ErrStale, Drift: drift}
	}
	return nil, nil
}

// conflicts says whether the key stands for content other than the attempt's, in any state of the key (S20).
func (a *attempt) conflicts(s store.Standing) bool {
	return s.Claim != nil && s.Claim.Digest != a.digest || s.Proposal != nil && s.Proposal.Digest != a.digest
}

// told is what a standing claim answers to whoever did not make it.
func told(c contract.OperationConfirmation, claim *store.Claim) (*contract.OperationResult, error) {
	switch {
	case claim.Completed:
		return replay(c, claim)
	case !claim.LeaseOver:
		return nil, contract.ErrInProgress
	}
	return ambiguous(c, claim)
}

// replay is the stored outcomes of a completed claim; everything else about the result is computed from them (S17).
func replay(c contract.OperationConfirmation, claim *store.Claim) (*contract.OperationResult, error) {
	if claim.Outcomes == nil { // purged: it was settled, and that is all that is known
		return &contract.OperationResult{IdempotencyKey: c.IdempotencyKey, Replayed: true}, nil
	}
	outcomes, err := contract.DecodeOutcomes(claim.Outcomes)
	if err != nil {
		return nil, unreadable(err)
	}
	return &contract.OperationResult{IdempotencyKey: c.IdempotencyKey, Outcomes: outcomes, Replayed: true}, nil
}

// ambiguous is what is known of a claim that was never completed: recorded items as recorded, every other ambiguous. An item
// that is not recorded as started may still be, by an executor that sleeps: only a raised fence would rule that out.
func ambiguous(c contract.OperationConfirmation, claim *store.Claim) (*contract.OperationResult, error) {
	res := &contract.OperationResult{IdempotencyKey: c.IdempotencyKey, Replayed: true}
	for _, it := range c.Items {
		o, err := recorded(claim, it.ID)
		if err != nil {
			return nil, err
		}
		res.Outcomes = append(res.Outcomes, o)
	}
	return res, nil
}

func recorded(claim *store.Claim, itemID string) (contract.OperationItemOutcome, error) {
	unknown := contract.OperationItemOutcome{ItemID: itemID, State: contract.Ambiguous, Reason: contract.ReasonNotCompleted}
	if claim == nil || len(claim.Items[itemID]) == 0 {
		return unknown, nil
	}
	stored, err := contract.DecodeOutcomes(claim.Items[itemID])
	if err != nil || len(stored) != 1 || stored[0].ItemID != itemID {
		return unknown, unreadable(err)
	}
	return stored[0], nil
}
