package broker

import (
	"context"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// ErrNoMutation is the answer of a query about an operation that is not recorded. That is no proof that it was not executed, and
// will not be: the request may still be on its way. Record UNKNOWN, or seal it (R110).
var ErrNoMutation = &contract.Failure{
	Code: contract.NotFound, Reason: "pramaan.agent_operation.no_mutation", Effect: contract.EffectUnknown,
	Message: "no such operation is recorded; it may still be on its way; record UNKNOWN, or seal it; do not start another",
}

// MutationStatus is everything that is known of a mutation.
type MutationStatus struct {
	MutationRef

	// Receipt is the stored one; UNKNOWN for an operation that is running, or whose attempt never came back.
	Receipt contract.Receipt
	// Running says that an attempt's lease runs: its receipt will come by itself.
	Running bool
	// Contradictions are what attempts that had lost the operation said of it, where the receipt does not say the same.
	Contradictions []contract.Receipt

	doc mutationDoc
}

// QueryMutation reads what became of a mutation and changes no row (R109, R120). It waits for a claim that is just being made. One
// round trip, one more by identity.
//
// Errors: *[contract.InvalidError], [contract.ErrDenied], [ErrNoMutation], [contract.ErrSealed], [contract.ErrPruned],
// [contract.ErrInProgress] when the wait takes too long, [contract.ErrUnavailable].
func (b *Broker[TTx]) QueryMutation(ctx context.Context, ref MutationRef) (st *MutationStatus, err error) {
	defer func(start time.Time) { b.observeMutation(ctx, "query_mutation", start, st.receipt(), err) }(time.Now())
	ref, s, err := b.readMutation(ctx, "query_mutation", ref)
	if err != nil {
		return nil, err
	}
	return statusOfMutation(ref.Tenant, s)
}

func (st *MutationStatus) receipt() contract.Receipt {
	if st == nil {
		return contract.Receipt{}
	}
	return st.Receipt
}

// readMutation finds the operation that ref names, and how it stands.
func (b *Broker[TTx]) readMutation(ctx context.Context, method string, ref MutationRef) (MutationRef, store.Standing, error) {
	var none store.Standing
	key, err := ref.key()
	if err != nil {
		return ref, none, err
	}
	if err := b.authorize(ctx, method, store.ID{Tenant: ref.Tenant, Key: key}); err != nil {
		return ref, none, err
	}
	ctx, cancel := b.bounded(ctx)
	defer cancel()
	s, err := b.lookupMutation(ctx, ref.Tenant, key)
	if err != nil || s.Claim.Mode != store.ModeIdentity {
		return ref, s, err
	}
	if s.Claim.Outcomes == nil {
		return ref, s, contract.ErrPruned
	}
	doc, err := decodeMutation(s.Claim.Outcomes)
	if err != nil {
		return ref, s, err
	}
	ref = doc.ref(ref.Tenant)
	s, err = b.lookupMutation(ctx, ref.Tenant, operationKey(ref.AgentID, ref.OperationID))
	return ref, s, err
}

func (b *Broker[TTx]) lookupMutation(ctx context.Context, tenant string, key uuid.UUID) (store.Standing, error) {
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: store.ID{Tenant: tenant, Key: key}, Barrier: true, Content: true})
	switch {
	case err != nil:
		return s, fromStore(err)
	case s.Claim == nil:
		return s, ErrNoMutation
	case s.Claim.Mode == store.ModeSeal:
		return s, contract.ErrSealed
	case s.Claim.Mode != store.ModeMutation && s.Claim.Mode != store.ModeIdentity:
		return s, ErrNoMutation
	}
	return s, nil
}

// ofConfirmation says whether a key is of a confirmation, and not of a mutation or of a fact.
func ofConfirmation(m store.Mode) bool {
	switch m {
	case store.ModeMutation, store.ModeIdentity, store.ModeSeal, store.ModeFact:
		return false
	}
	return true
}

// key is the key of what ref names.
func (r MutationRef) key() (uuid.UUID, error) {
	if err := contract.ValidateTenant(r.Tenant); err != nil {
		return uuid.Nil, err
	}
	if r.Identity != (Identity{}) {
		return r.Identity.key(), r.Identity.validate()
	}
	if err := contract.ValidateText("/agent_id", r.AgentID, contract.MaxMetaText); err != nil {
		return uuid.Nil, err
	}
	return operationKey(r.AgentID, r.OperationID), contract.ValidateText("/operation_id", r.OperationID, contract.MaxMetaText)
}

func statusOfMutation(tenant string, s store.Standing) (*MutationStatus, error) {
	if forgotten(s.Claim) {
		return nil, contract.ErrPruned
	}
	doc, err := decodeMutation(s.Claim.Content)
	if err != nil {
		return nil, err
	}
	r, err := doc.standing(s.Claim)
	if err != nil {
		return nil, err
	}
	st := &MutationStatus{MutationRef: doc.ref(tenant), Receipt: *r, Running: !s.Claim.Completed && !s.Claim.LeaseOver, doc: doc}
	for _, seen := range s.Claim.Observations {
		var said contract.Receipt
		if err := said.UnmarshalJSON(seen.Outcome); err != nil {
			return nil, unreadable(err)
		}
		if !receiptAgrees(s.Claim, said) {
			st.Contradictions = append(st.Contradictions, said)
		}
	}
	return st, nil
}

// SealMutation makes sure that an operation, or whatever has an identity, that is not recorded never runs: a request that is still
// on its way is refused with contract.ErrSealed. Only after that is "not executed" known. A recorded operation is not changed: its
// status is the answer, with a nil error. Sealing twice is the same: the error is then contract.ErrSealed, as it is for the
// first. By, who stands for it, is stored.
func (b *Broker[TTx]) SealMutation(ctx context.Context, ref MutationRef, by string) (st *MutationStatus, err error) {
	defer func(start time.Time) { b.observeMutation(ctx, "seal_mutation", start, st.receipt(), err) }(time.Now())
	if err := contract.ValidateText("/by", by, contract.MaxBy); err != nil {
		return nil, err
	}
	key, err := ref.key()
	if err != nil {
		return nil, err
	}
	id := store.ID{Tenant: ref.Tenant, Key: key}
	if err := b.authorize(ctx, "seal_mutation", id); err != nil {
		return nil, err
	}
	attempt, err := uuid.NewRandom()
	if err != nil {
		return nil, unavailable(err)
	}
	sealed := contract.Receipt{
		Result: contract.ResultNotApplied, OperationID: ref.OperationID, By: by, Detail: "sealed", RecordedAt: time.Now().UnixMilli(),
	}
	outcomes, err := sealed.MarshalJSON()
	if err != nil {
		return nil, err
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	s, err := b.store.Own().Claim(ctx, store.ClaimParams{
		ID: id, Attempt: attempt, Mode: store.ModeSeal, Lease: b.cfg.Lease, AcceptUnminted: true, Content: outcomes, Outcomes: outcomes,
	})
	switch {
	case err != nil:
		return nil, fromStore(err)
	case s.Claim == nil:
		return nil, contract.ErrRetryTx
	case s.Claim.Mode == store.ModeSeal:
		return nil, contract.ErrSealed
	}
	return b.QueryMutation(ctx, ref)
}

// EvidenceReader reads from the live system what became of a mutation, and returns a receipt with the evidence: APPLIED with a ref,
// a moved revision or a reached barrier, NOT_APPLIED or CONFLICT with Detail saying how that was found. It must not make the
// effect. An error, or the zero receipt, leaves it UNKNOWN.
type EvidenceReader func(ctx context.Context, c Call) (contract.Receipt, error)

// ResolveMutation advances a receipt that says UNKNOWN or ACCEPTED by evidence, never by another attempt. It raises the fence
// first, so that an attempt that wakes up late can record nothing but a contradiction. By, who stands for the evidence, is stored
// in the receipt. A terminal receipt is the answer as it is, and read is not called.
//
// Errors: *[contract.InvalidError], also for evidence that cannot stand; [contract.ErrNotAdvanced]; [contract.ErrDenied];
// [ErrNoMutation], [contract.ErrSealed], [contract.ErrPruned]; [contract.ErrInProgress] while the lease runs;
// [contract.ErrFenced] when another ResolveMutation was quicker; [contract.ErrUnavailable], after which it may be called again.
func (b *Broker[TTx]) ResolveMutation(ctx context.Context, ref MutationRef, by string, read EvidenceReader) (
	r contract.Receipt, err error,
) {
	defer func(start time.Time) { b.observeMutation(ctx, "resolve_mutation", start, r, err) }(time.Now())
	if err := contract.ValidateText("/by", by, contract.MaxBy); err != nil {
		return r, err
	}
	if read == nil {
		return r, &contract.InvalidError{Path: "/reader", Problem: "must not be nil"}
	}
	ref, s, err := b.readMutation(ctx, "resolve_mutation", ref)
	if err != nil {
		return r, err
	}
	st, err := statusOfMutation(ref.Tenant, s)
	switch {
	case err != nil:
		return r, err
	case st.Receipt.Result.Terminal():
		return st.Receipt, nil
	case st.Running:
		return r, contract.ErrInProgress
	}
	return b.advance(ctx, ref, st.doc, by, s.Claim, st.Receipt, read)
}

// advance reads under a raised fence, and records. An attempt that never came back is seized before, and its receipt recorded also
// if that is still UNKNOWN; a stored receipt is replaced under the fence that it was read with.
func (b *Broker[TTx]) advance(ctx context.Context, ref MutationRef, doc mutationDoc, by string, claim *store.Claim, from contract.Receipt,
	read EvidenceReader,
) (contract.Receipt, error) {
	id, err := uuid.NewRandom()
	if err != nil {
		return from, unavailable(err)
	}
	a := newKeyAttempt("resolve_mutation", ref.Tenant, operationKey(ref.AgentID, ref.OperationID), id)
	held, record := store.Fenced{ID: a.keyID(), Attempt: claim.Attempt, Fence: claim.Fence}, b.settleClaim
	deadline := b.leaseEnd()
	stored := from
	stored.Replayed = false
	if claim.Completed {
		if err := b.recordReceipt(ctx, a, held, stored, record); err != nil {
			return from, err
		}
		held.Fence++ // which Settle has raised
	} else {
		s, err := b.seizeKey(ctx, a)
		if err != nil {
			return from, fromStore(err)
		}
		if !a.holds(s) {
			return from, contract.ErrFenced
		}
		held, record = *a.held(s), b.complete
	}
	next, problem := evidenceOf(ctx, doc.call(held), by, stored, deadline, read)
	if claim.Completed && next.Result == from.Result {
		return from, problem
	}
	if err := b.recordReceipt(ctx, a, held, next, record); err != nil {
		return from, err
	}
	return next, problem
}

func (b *Broker[TTx]) recordReceipt(ctx context.Context, a *attempt, held store.Fenced, r contract.Receipt,
	record func(context.Context, *attempt, store.CompleteParams) error,
) error {
	p, err := receiptCompletion(held, r)
	if err != nil {
		return err
	}
	return fromStore(record(ctx, a, p))
}

// evidenceOf is the receipt that the evidence makes of from: from itself when there is none.
func evidenceOf(ctx context.Context, c Call, by string, from contract.Receipt, deadline time.Time, read EvidenceReader) (
	contract.Receipt, error,
) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	done := start(func() (contract.Receipt, error) { return read(ctx, c) })
	var found contract.Receipt
	select {
	case r := <-done:
		found = r.value
		if r.err != nil {
			found = contract.Receipt{}
		}
	case <-ctx.Done():
	}
	if found.Result == "" || found.Result == from.Result {
		return from, nil
	}
	found.By = by
	if found.RecordedAt == 0 {
		found.RecordedAt = time.Now().UnixMilli()
	}
	return from.Advance(found)
}

// UnresolvedMutation is a mutation that needs somebody.
type UnresolvedMutation struct {
	MutationRef
	Key    uuid.UUID // its place in the listing
	Method string
	Age    time.Duration // since it was claimed, on the database's clock
	// Result is UNKNOWN or ACCEPTED; another one when it is listed only because it is Contested.
	Result    contract.ResultCode
	Contested bool // an attempt that had lost the operation contradicts its receipt; without names once that is purged
}

// ListUnresolvedMutations tells a page of the tenant's mutations that need somebody: those that say UNKNOWN or ACCEPTED and are not
// running, and contested ones. Their order is of no meaning. The next page begins after the last key of this one; an empty page
// is the end. Nothing resolves in the background by itself. Errors as for [Broker.ListUnresolved].
func (b *Broker[TTx]) ListUnresolvedMutations(ctx context.Context, p Page) (page []UnresolvedMutation, err error) {
	defer func(start time.Time) {
		b.observeMutation(ctx, "list_unresolved_mutations", start, contract.Receipt{}, err)
	}(time.Now())
	err = b.eachOpen(ctx, "list_unresolved_mutations", p, func(ctx context.Context, o store.Open) (bool, error) {
		if o.Mode != store.ModeMutation {
			return false, nil
		}
		u, needed, err := b.unresolvedMutation(ctx, p.Tenant, o)
		if needed {
			page = append(page, u)
		}
		return needed, err
	})
	return page, err
}

func (b *Broker[TTx]) unresolvedMutation(ctx context.Context, tenant string, o store.Open) (u UnresolvedMutation, needed bool, err error) {
	id := store.ID{Tenant: tenant, Key: o.Key}
	s, err := b.store.Own().Lookup(ctx, store.LookupParams{ID: id, Content: true})
	if err != nil || s.Claim == nil {
		return u, false, fromStore(err)
	}
	if forgotten(s.Claim) { // and contradicted since: of what it was nothing is left
		return UnresolvedMutation{MutationRef: MutationRef{Tenant: tenant}, Key: o.Key, Age: o.Age, Contested: true}, true, nil
	}
	st, err := statusOfMutation(tenant, s)
	if err != nil {
		return u, false, err
	}
	u = UnresolvedMutation{
		MutationRef: st.MutationRef, Key: o.Key, Method: st.doc.Method, Age: o.Age, Result: st.Receipt.Result,
		Contested: len(st.Contradictions) > 0,
	}
	return u, u.Contested || !st.Receipt.Result.Terminal() && !st.Running, nil
}
