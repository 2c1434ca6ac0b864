package broker

import (
	"context"
	"errors"
	"time"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// Mutate carries out one durable mutation of the Agent contract, exactly once per operation, and answers with its receipt. It is
// the machine of the other modes with another answer: a claim, an effect, and what is known of it.
//
// A repeated request is answered with the stored receipt, Replayed, and runs nothing; while the first one runs, and after a crash
// that left none, that is UNKNOWN, at once (R26, R29, R33). UNKNOWN and ACCEPTED are answers with a nil error:
// [contract.Receipt.Err] says whether it was applied. They advance only by evidence, with [Broker.ResolveMutation].
//
// Errors, with which nothing was done and nothing is stored: *[contract.InvalidError]; Guard's; contract.ErrSealed;
// *[contract.ConflictError] for other content or another key under the operation id; [contract.ErrSecondOperation];
// [contract.ErrDenied]; Apply's own, if it is a [contract.Failure]; [contract.ErrInProgress] when another request holds the
// operation for longer than the store waits; [contract.ErrUnavailable], with EffectNone if
// nothing was done under the operation, and that is known. Others: [contract.ErrPruned];
// [contract.ErrFenced] when the operation was resolved while Invoke ran; [contract.ErrUnavailable], after which query.
//
// Round trips: 3 with Invoke alone; 4 and its own with Guard or Apply; 2 more per identity; a replay 2.
func (b *Broker[TTx]) Mutate(ctx context.Context, m Mutation[TTx]) (r contract.Receipt, err error) {
	defer func(start time.Time) { b.observeMutation(ctx, "mutate", start, r, err) }(time.Now())
	mu, err := b.newMutation(m)
	if err != nil {
		return r, err
	}
	denied := b.authorize(ctx, "mutate", mu.keyID())
	var held *store.Fenced
	deadline := b.leaseEnd()
	err = again(ctx, mu.attempt, func() (err error) {
		deadline = b.leaseEnd()
		held, r, err = b.mutateOnce(ctx, mu, denied)
		return err
	})
	if err != nil || held == nil {
		return r, fromStore(err)
	}
	return b.invoke(ctx, mu, *held, deadline)
}

// mutateOnce is the mutation's transaction, once: held is set when Invoke is to follow, else r is the answer.
func (b *Broker[TTx]) mutateOnce(ctx context.Context, m *mutation[TTx], denied error) (*store.Fenced, contract.Receipt, error) {
	var none contract.Receipt
	claim := m.claimParams(b.cfg.Lease)
	beginCtx, begun := b.bounded(ctx)
	defer begun()
	tx, s, err := b.store.Begin(beginCtx, store.Opening{ID: m.keyID(), Claim: &claim})
	if err != nil {
		return nil, none, m.beginFault(err)
	}
	m.owned = m.holds(s)
	r, answered := b.answerMutation(ctx, tx, m, s, denied)
	applied, err := b.applyMutation(ctx, tx, m, answered == nil && r == nil)
	endCtx, cancel := b.detached(ctx) // Guard and Apply have taken their own time
	defer cancel()
	if err == nil {
		err = answered
	}
	if err != nil || r != nil {
		if ended := b.store.Rollback(endCtx, tx); errors.Is(ended, store.ErrTxEnded) && err != nil {
			err = ended
		}
		if err != nil {
			return nil, none, m.refusal(err)
		}
		return nil, *r, nil
	}
	return b.commitMutation(ctx, endCtx, tx, m, *m.held(s), applied)
}

// claimParams claims the operation; its content is stored with it, since nothing proposed it.
func (m *mutation[TTx]) claimParams(lease time.Duration) store.ClaimParams {
	return store.ClaimParams{
		ID: m.keyID(), Digest: m.digest, Attempt: m.id, Mode: m.mode, Lease: lease, AcceptUnminted: true, Content: m.content,
	}
}

// answerMutation tells a request that does not run why, in the order of answers: both are nil for one that holds everything.
func (b *Broker[TTx]) answerMutation(ctx context.Context, tx TTx, m *mutation[TTx], s store.Standing, denied error) (
	*contract.Receipt, error,
) {
	if !m.holds(s) {
		r, err := m.told(s)
		if errors.Is(err, contract.ErrKeyReused) || errors.Is(err, contract.ErrSealed) || denied == nil {
			return r, err
		}
	}
	if denied != nil {
		return nil, denied
	}
	for _, i := range m.Identities {
		if err := b.claimIdentity(ctx, tx, m, i); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// told is what the standing claim of an operation answers to whoever did not make it.
func (m *mutation[TTx]) told(s store.Standing) (*contract.Receipt, error) {
	switch {
	case s.Claim == nil:
		return nil, contract.ErrRetryTx // a snapshot older than what stands
	case s.Claim.Mode == store.ModeSeal:
		return nil, contract.ErrSealed
	case s.Claim.Digest != m.digest || s.Claim.Mode != store.ModeMutation:
		return nil, &contract.ConflictError{Failure: *contract.ErrOperationReused}
	}
	return m.doc.standing(s.Claim)
}

// standing is the receipt of a standing claim of the operation: UNKNOWN unless one is stored.
func (d mutationDoc) standing(claim *store.Claim) (*contract.Receipt, error) {
	r := d.receipt()
	if claim.Completed {
		if claim.Outcomes == nil {
			return nil, contract.ErrPruned
		}
		if err := r.UnmarshalJSON(claim.Outcomes); err != nil {
			return nil, unreadable(err)
		}
	}
	r.Replayed = true
	return &r, nil
}

// claimIdentity makes an identity the operation's, in its transaction, or says that another has it. It is completed as it is made.
func (b *Broker[TTx]) claimIdentity(ctx context.Context, tx TTx, m *mutation[TTx], i Identity) error {
	s, err := b.store.In(tx).Claim(ctx, store.ClaimParams{
		ID: store.ID{Tenant: m.Tenant, Key: i.key()}, Digest: m.digest, Attempt: m.id, Mode: store.ModeIdentity, Lease: b.cfg.Lease,
		AcceptUnminted: true, Content: m.content, Outcomes: m.content,
	})
	switch {
	case err != nil:
		return err
	case m.holds(s):
		return nil
	case s.Claim == nil:
		return contract.ErrRetryTx
	case s.Claim.Mode == store.ModeSeal:
		return contract.ErrSealed
	}
	return contract.ErrSecondOperation
}

// applyMutation runs Guard and, for a request that is to run, Apply, so that neither a panic nor an aborted transaction gets out.
// Its error beats every answer: a fenced caller is told so before anything else.
func (b *Broker[TTx]) applyMutation(ctx context.Context, tx TTx, m *mutation[TTx], runs bool) (r contract.Receipt, err error) {
	runs = runs && m.Apply != nil
	if m.Guard == nil && !runs {
		return r, nil
	}
	undone, err := b.store.Isolate(ctx, tx, 1, func(_ int, tx TTx) error {
		return guarded(func() (err error) {
			if m.Guard != nil {
				err = m.Guard(ctx, tx)
			}
			if err == nil && runs {
				r, err = m.Apply(ctx, tx)
			}
			return err
		})
	})
	if err != nil {
		return r, err
	}
	return r, undone[0]
}

// refusal is the answer after a transaction that was rolled back: the reason's own words if it has any.
func (m *mutation[TTx]) refusal(err error) error {
	if _, ok := contract.FailureOf(err); ok {
		return err
	}
	return m.uncommitted(err)
}

// commitMutation commits with the receipt, or with none when Invoke is to follow: then UNKNOWN is what the claim says from now on.
func (b *Broker[TTx]) commitMutation(ctx, endCtx context.Context, tx TTx, m *mutation[TTx], held store.Fenced, applied contract.Receipt) (
	*store.Fenced, contract.Receipt, error,
) {
	var closing store.Closing
	follows := m.Invoke != nil && !applied.Result.Terminal()
	r := m.doc.receipt()
	if !follows {
		var err error
		if r, err = m.recorded(applied); err != nil {
			_ = b.store.Rollback(endCtx, tx)
			return nil, contract.Receipt{}, err
		}
		p, err := receiptCompletion(held, r)
		if err != nil {
			_ = b.store.Rollback(endCtx, tx)
			return nil, contract.Receipt{}, err
		}
		closing.Complete = &p
	}
	err := b.store.Commit(endCtx, tx, closing)
	if unknown(err) {
		other, lost := b.committedMutation(ctx, m, err)
		if other != nil || lost != nil {
			return nil, orNone(other), lost
		}
		err = nil
	}
	switch {
	case err != nil:
		return nil, contract.Receipt{}, m.uncommitted(err)
	case follows:
		return &held, r, nil
	}
	return nil, r, nil
}

// committedMutation finds out what became of a commit whose reply was lost. Both are nil when it is committed; else the answer is
// what another request has made of the operation meanwhile, or that nothing was done.
func (b *Broker[TTx]) committedMutation(ctx context.Context, m *mutation[TTx], cause error) (*contract.Receipt, error) {
	s, err := b.standing(ctx, m.attempt)
	switch {
	case err != nil:
		return nil, unavailable(cause) // without err, which could ask for another try
	case m.holds(s):
		return nil, nil
	case s.Claim == nil:
		return nil, m.undone(cause)
	}
	return m.told(s)
}

func orNone(r *contract.Receipt) contract.Receipt {
	if r == nil {
		return contract.Receipt{}
	}
	return *r
}

// recorded is what Apply or Invoke returned, as a receipt of this operation that can be stored.
func (m *mutation[TTx]) recorded(r contract.Receipt) (contract.Receipt, error) {
	own := m.doc.receipt()
	r.Method, r.OperationID, r.Digest, r.Replayed = own.Method, own.OperationID, own.Digest, false
	if r.RecordedAt == 0 {
		r.RecordedAt = time.Now().UnixMilli()
	}
	r = r.Clean()
	return r, r.Validate()
}

func receiptCompletion(held store.Fenced, r contract.Receipt) (store.CompleteParams, error) {
	data, err := r.MarshalJSON()
	return store.CompleteParams{Fenced: held, Outcomes: data, Unsettled: !r.Result.Terminal()}, err
}

// invoke makes the effect outside the database, under a claim that says UNKNOWN, and records what is known of it then.
func (b *Broker[TTx]) invoke(ctx context.Context, m *mutation[TTx], held store.Fenced, deadline time.Time) (contract.Receipt, error) {
	r := b.invokeOnce(ctx, m, held, deadline)
	p, err := receiptCompletion(held, r)
	if err != nil {
		return contract.Receipt{}, err
	}
	if err := b.complete(ctx, m.attempt, p); err != nil {
		if errors.Is(err, store.ErrFenced) {
			b.observeReceipt(ctx, m.attempt, held, r)
			return contract.Receipt{}, fromStore(err)
		}
		return m.doc.receipt(), nil // not recorded: a later query could not tell it either
	}
	return r, nil
}

// invokeOnce makes the effect, unless the lease is over before it began: then somebody may have read by now that it is not there.
func (b *Broker[TTx]) invokeOnce(ctx context.Context, m *mutation[TTx], held store.Fenced, deadline time.Time) contract.Receipt {
	if !time.Now().Before(deadline) {
		r, _ := m.recorded(contract.Receipt{Result: contract.ResultNotApplied, Detail: "not invoked: the lease was over before it could be"})
		return r
	}
	return m.evidence(runUntil(ctx, deadline,
		func(ctx context.Context) (contract.Receipt, error) { return m.Invoke(ctx, m.call(held)) },
		func(late returned[contract.Receipt]) { b.observeReceipt(ctx, m.attempt, held, m.evidence(late)) }))
}

// evidence is what an invocation that returned so tells: UNKNOWN after every error, and after a receipt that cannot stand.
func (m *mutation[TTx]) evidence(ret returned[contract.Receipt]) contract.Receipt {
	r, problem := ret.value, ret.text
	if ret.err == nil {
		recorded, err := m.recorded(r)
		if err == nil {
			return recorded
		}
		problem = err.Error()
	}
	r, _ = m.recorded(contract.Receipt{Result: contract.ResultUnknown, Detail: problem})
	return r
}

// observeReceipt keeps what an attempt that had lost its operation says of the effect, beside what the operation says.
func (b *Broker[TTx]) observeReceipt(ctx context.Context, a *attempt, held store.Fenced, r contract.Receipt) {
	if !r.Result.Terminal() {
		return
	}
	data, err := r.MarshalJSON()
	if err != nil {
		return
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: a.keyID()})
	if err != nil || s.Claim != nil && receiptAgrees(s.Claim, r) || forgotten(s.Claim) {
		return
	}
	_ = b.store.Keep().Observe(ctx, store.ObserveParams{Fenced: held, Item: receiptItem, Outcome: data})
}

// receiptItem names a mutation's one effect among observations.
const receiptItem = "receipt"

// receiptAgrees says whether a completed claim tells the same of the effect.
func receiptAgrees(claim *store.Claim, r contract.Receipt) bool {
	var stored contract.Receipt
	if !claim.Completed || stored.UnmarshalJSON(claim.Outcomes) != nil {
		return false
	}
	return stored.Result.Terminal() && stored.Applied() == r.Applied()
}
