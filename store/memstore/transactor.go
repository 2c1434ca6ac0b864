package memstore

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/store"
)

// errNotMade is the answer to the end of a transaction that belongs to somebody else.
var errNotMade = errors.New("memstore: only what Store.Begin returned is ended by the store")

// Begin implements [store.Transactor]. The Tx refuses its own Commit and Rollback: it ends with [Store.Commit] or
// [Store.Rollback]. A transaction of the caller's own begins with [Store.BeginTx].
func (s *Store) Begin(ctx context.Context, o store.Opening) (*Tx, store.Standing, error) {
	const op = "memstore: begin"
	tx, err := s.begin(ctx, op)
	if err != nil {
		return nil, store.Standing{}, err
	}
	standing, err := txClaims{tx}.open(context.WithoutCancel(ctx), op, o)
	if err != nil {
		_ = tx.body.rollback(op) // cannot fail: nobody else has this transaction
		return nil, store.Standing{}, err
	}
	tx.lent, tx.made = true, true
	return tx, standing, nil
}

// open makes the claim of o, or sees that the claim is held that o names. The only writer is the lock.
func (c txClaims) open(ctx context.Context, op string, o store.Opening) (s store.Standing, err error) {
	if err := c.meet(o.Tenant, o.Guards); err != nil {
		return s, &store.Error{Op: op, Kind: err}
	}
	if o.Claim != nil {
		s, err = c.Claim(ctx, *o.Claim)
	}
	if err == nil && o.Hold != nil && !c.tx.body.get(o.Hold.ID).holds(*o.Hold) {
		err = &store.Error{Op: op, Kind: store.ErrFenced}
	}
	return s, err
}

// Commit implements [store.Transactor]. It knows always: its error is [store.ErrNotCommitted], or [store.ErrTxEnded]
// for a transaction that was over already.
func (s *Store) Commit(ctx context.Context, tx *Tx, c store.Closing) error {
	const op = "memstore: commit"
	if err := tx.endable(op); err != nil {
		return err
	}
	if err := (txClaims{tx}).write(context.WithoutCancel(ctx), c); err != nil {
		_ = tx.body.rollback(op) // cannot fail: it has not ended
		return &store.Error{Op: op, Kind: store.ErrNotCommitted, Cause: err}
	}
	return tx.body.commit(op)
}

func (c txClaims) write(ctx context.Context, w store.Closing) (err error) {
	if p := w.Progress; p != nil {
		err = c.update(ctx, "memstore: progress", p.ID, func(r record) (record, error) {
			return r.commit(c.tx.body.store.now(), *p)
		})
	}
	if err == nil && w.Complete != nil {
		err = c.Complete(ctx, *w.Complete)
	}
	return err
}

// Rollback implements [store.Transactor].
func (s *Store) Rollback(_ context.Context, tx *Tx) error {
	const op = "memstore: rollback"
	if err := tx.endable(op); err != nil {
		return err
	}
	return tx.body.rollback(op)
}

// endable tells whether the store may end tx: it made it, and it has not ended.
func (tx *Tx) endable(op string) error {
	switch {
	case !tx.made:
		return &store.Error{Op: op, Cause: errNotMade}
	case tx.ended():
		return &store.Error{Op: op, Kind: store.ErrTxEnded}
	}
	return nil
}

// Retryable implements [store.Transactor]. There is one writer, and so no deadlock: only [store.ErrRetryTx], as an
// executor of a test may return it.
func (s *Store) Retryable(_ *Tx, err error) bool { return errors.Is(err, store.ErrRetryTx) }
