package broker

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/contract"
	"github.com/confirmexec/confirmexec/store"
)

// MintKey makes an idempotency key: a UUID of version 7 (RFC 9562), whose order keeps the store's indexes small in WAL. It
// fails when the system's randomness does. A key is unique, scoped to its tenant, and neither a secret nor an authorization.
func MintKey() (uuid.UUID, error) {
	key, err := uuid.NewV7()
	if err != nil {
		return uuid.Nil, unavailable(err)
	}
	return key, nil
}

// Propose mints the key of an operation, records its content, digest and expiry for the tenant, and returns the
// confirmation to show to the person who decides. One round trip. Nothing happens until it is confirmed; a proposal whose
// reply was lost is harmless, so propose again.
//
// Errors: *[contract.InvalidError]; [contract.ErrUnavailable].
func (b *Broker[TTx]) Propose(ctx context.Context, tenant string, p contract.OperationProposal) (
	c contract.OperationConfirmation, err error,
) {
	defer func(start time.Time) { b.observe(ctx, "propose", start, nil, err) }(time.Now())
	if err := contract.ValidateTenant(tenant); err != nil {
		return c, err
	}
	if err := p.Validate(b.cfg.Limits); err != nil {
		return c, err
	}
	digest, err := contract.DigestOf(p)
	if err != nil {
		return c, err
	}
	content, err := encodeContent(p)
	if err != nil {
		return c, err
	}
	key, err := MintKey()
	if err != nil {
		return c, err
	}
	ctx, cancel := b.detached(ctx)
	defer cancel()
	err = b.store.Own().Propose(ctx, store.ProposeParams{
		ID: store.ID{Tenant: tenant, Key: key}, Digest: digest, Content: content, Expiry: b.cfg.ProposalExpiry,
	})
	if errors.Is(err, store.ErrLockTimeout) {
		err = store.ErrBusy // a new key is held by nobody
	}
	if errors.Is(err, store.ErrBusy) {
		f := contract.ErrUnavailable.With(err)
		f.Effect, f.Message = contract.EffectNone, "the database is busy; nothing was done; propose again"
		return c, f
	}
	if err != nil {
		return c, fromStore(err)
	}
	return p.Confirmation(key), nil
}
