package broker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Cancel completes a key that was not confirmed, with every item skipped, so that a confirm that is still on its way can
// never run. Proposing the same content again under a new key is safe only after that.
//
// A key that was confirmed before is not changed: the result is then what a confirm would be answered, replayed. Cancelling
// twice is the same. Two round trips. Errors: *[contract.InvalidError], [contract.ErrDenied], [contract.ErrNotMinted]
// (a key that Propose did not mint cannot be cancelled, also with AcceptUnmintedKeys), [contract.ErrInProgress],
// [contract.ErrExpired] of a proposal whose content was purged: it cannot run any more; [contract.ErrUnavailable].
func (b *Broker[TTx]) Cancel(ctx context.Context, tenant string, key uuid.UUID) (res *contract.OperationResult, err error) {
	defer func(start time.Time) { b.observe(ctx, "cancel", start, res, err) }(time.Now())
	s, err := b.read(ctx, "cancel", tenant, key)
	if err != nil {
		return nil, err
	}
	c, err := contentOf(key, s)
	if err != nil {
		return nil, err
	}
	if s.Claim != nil {
		return told(c, s.Claim)
	}
	if len(c.Items) == 0 {
		return nil, contract.ErrExpired
	}
	attemptID, err := uuid.NewRandom()
	if err != nil {
		return nil, unavailable(err)
	}
	outcomes := cancelled(c.Items)
	ctx, cancel := b.detached(ctx)
	defer cancel()
	s, err = b.store.Own().Claim(ctx, store.ClaimParams{
		ID: store.ID{Tenant: tenant, Key: key}, Digest: s.Proposal.Digest, Attempt: attemptID, Mode: store.ModeCancel,
		Outcomes: contract.EncodeOutcomes(outcomes),
	})
	if err != nil {
		return nil, fromStore(err)
	}
	if s.Claim == nil {
		return nil, contract.ErrNotMinted
	}
	if s.Claim.Attempt != attemptID {
		return told(c, s.Claim)
	}
	return &contract.OperationResult{IdempotencyKey: key, Outcomes: outcomes}, nil
}

func cancelled(items []contract.Item) []contract.OperationItemOutcome {
	outcomes := make([]contract.OperationItemOutcome, len(items))
	for i, it := range items {
		outcomes[i] = contract.OperationItemOutcome{ItemID: it.ID, State: contract.Skipped, Reason: contract.ReasonCancelled}
	}
	return outcomes
}
