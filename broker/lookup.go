package broker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Phase is how a key stands.
type Phase string

// The phases of a key. There is no way back to an earlier one.
const (
	Proposed   Phase = "proposed"    // not confirmed yet
	Expired    Phase = "expired"     // never confirmed, and can no longer be
	InProgress Phase = "in_progress" // an attempt is running
	Unresolved Phase = "unresolved"  // an attempt was never completed: nobody knows how it ended
	Completed  Phase = "completed"   // its outcomes are final, but for ambiguous ones
)

// Status is everything that Lookup knows of a key.
type Status struct {
	Phase Phase

	// Confirmation is what was proposed under the key. Its Items are empty when the content is no longer stored.
	Confirmation contract.OperationConfirmation

	// Result is what is known of the items: for Completed the stored outcomes, for Unresolved what was recorded. It is nil
	// in every other phase.
	Result *contract.OperationResult

	// Contradictions are what attempts that had lost the key said of items, where the key does not say the same.
	Contradictions []Contradiction
}

// Lookup reads how a key stands and changes nothing. It waits for a claim that is just being made, so that it can be asked
// after a commit of the caller's own whose end is not known (ExecuteTx): if Lookup says Proposed, that commit did not happen and
// will not. After an Execute that was answered contract.ErrUnavailable its claim may still be on its way: confirm the same key
// again, or Cancel it.
//
// One round trip. Errors: *[contract.InvalidError], [contract.ErrDenied], [contract.ErrNotMinted] (also for another
// tenant's key), [contract.ErrInProgress] when the wait takes too long, [contract.ErrUnavailable].
func (b *Broker[TTx]) Lookup(ctx context.Context, tenant string, key uuid.UUID) (st *Status, err error) {
	defer func(start time.Time) { b.observe(ctx, "lookup", start, st.result(), err) }(time.Now())
	s, err := b.read(ctx, "lookup", tenant, key)
	if err != nil {
		return nil, err
	}
	return statusOf(key, s)
}

// read is the common start of Lookup and Cancel.
func (b *Broker[TTx]) read(ctx context.Context, method, tenant string, key uuid.UUID) (store.Standing, error) {
	var none store.Standing
	if err := contract.ValidateTenant(tenant); err != nil {
		return none, err
	}
	id := store.ID{Tenant: tenant, Key: key}
	if err := b.authorize(ctx, method, id); err != nil {
		return none, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: id, Barrier: true, Content: true})
	if err != nil {
		return none, fromStore(err)
	}
	if s.Claim == nil && s.Proposal == nil || s.Claim != nil && !ofConfirmation(s.Claim.Mode) {
		return none, contract.ErrNotMinted
	}
	return s, nil
}

func statusOf(key uuid.UUID, s store.Standing) (*Status, error) {
	c, err := contentOf(key, s)
	if err != nil {
		return nil, err
	}
	st := &Status{Phase: phaseOf(s), Confirmation: c}
	switch st.Phase {
	case Completed:
		st.Result, err = replay(c, s.Claim)
	case Unresolved:
		st.Result, err = ambiguous(c, s.Claim)
	case Proposed, Expired, InProgress:
	}
	if err == nil && s.Claim != nil {
		st.Contradictions, err = contradictions(s.Claim)
	}
	if err != nil {
		return nil, err
	}
	return st, nil
}

func phaseOf(s store.Standing) Phase {
	switch {
	case s.Claim == nil && s.Proposal.Expired:
		return Expired
	case s.Claim == nil:
		return Proposed
	case s.Claim.Completed:
		return Completed
	case s.Claim.LeaseOver:
		return Unresolved
	}
	return InProgress
}

// contentOf reads the content that the key stands for, from its proposal or, for a key without one, from its claim.
func contentOf(key uuid.UUID, s store.Standing) (contract.OperationConfirmation, error) {
	var content []byte
	if s.Proposal != nil {
		content = s.Proposal.Content
	} else if s.Claim != nil {
		content = s.Claim.Content
	}
	if len(content) == 0 {
		return contract.OperationConfirmation{IdempotencyKey: key}, nil
	}
	p, err := contract.DecodeProposal(content, contract.Limits{})
	if err != nil {
		return contract.OperationConfirmation{}, unreadable(err)
	}
	return p.Confirmation(key), nil
}

func (s *Status) result() *contract.OperationResult {
	if s == nil {
		return nil
	}
	return s.Result
}
