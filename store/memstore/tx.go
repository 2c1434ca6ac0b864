package memstore

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/store"
)

// errLent is the answer to an executor that ends the transaction that it was lent.
var errLent = errors.New("memstore: an executor must not end the transaction that it was lent")

// Tx is a transaction of a [Store]: the only one that is open at its time. Begin one with [Store.BeginTx] and end it
// with Commit or Rollback; until then every other writer waits.
//
// An executor gets a Tx on loan, and the broker one that [Store.Begin] made: their Commit and Rollback are refused. An
// executor's own effects, on a map or a slice of the test, are undone with the transaction or with its item if it says
// how: see [Tx.OnRollback].
//
// A Tx is not safe for concurrent use.
type Tx struct {
	body *body
	lent bool // cannot be ended by its own methods
	made bool // by Store.Begin: is ended by Store.Commit and Store.Rollback
}

// body is the transaction that several handles share.
type body struct {
	store   *Store
	written map[store.ID]record           // what the transaction sees in place of what is committed
	values  map[store.ValueID]store.Value // the same of values
	undo    []func()                      // in the order of what they undo
	ended   bool
}

// BeginTx begins a transaction of the caller's own, for [Store.In] and [Store.Isolate], as soon as no other is open.
// The error is [store.ErrBusy] when that takes longer than the lock timeout or when ctx ends first. ctx does not
// bound the transaction.
func (s *Store) BeginTx(ctx context.Context) (*Tx, error) { return s.begin(ctx, "memstore: begin") }

func (s *Store) begin(ctx context.Context, op string) (*Tx, error) {
	if err := s.acquire(ctx, op); err != nil {
		return nil, err
	}
	return &Tx{body: &body{store: s, written: make(map[store.ID]record), values: make(map[store.ValueID]store.Value)}}, nil
}

// Commit makes the transaction's writes visible and ends it. The error is [store.ErrTxEnded] when it has ended already;
// a Tx that was lent to an executor is never committed.
func (tx *Tx) Commit() error {
	if tx.lent {
		return errLent
	}
	return tx.body.commit("memstore: commit")
}

// Rollback undoes the transaction and ends it: what was registered with OnRollback runs, the last first. The error is
// [store.ErrTxEnded] when it has ended already; a Tx that was lent to an executor is never rolled back.
func (tx *Tx) Rollback() error {
	if tx.lent {
		return errLent
	}
	return tx.body.rollback("memstore: rollback")
}

// OnRollback registers undo, which runs if what was done so far is undone: by Rollback, or when an item of Isolate
// fails in which it was registered. It lets an executor's effect in memory be part of the transaction:
//
//	ledger[item.ID] = amount
//	tx.OnRollback(func() { delete(ledger, item.ID) })
func (tx *Tx) OnRollback(undo func()) { tx.body.undo = append(tx.body.undo, undo) }

func (tx *Tx) ended() bool { return tx.body.ended }

func (tx *Tx) lend() *Tx { return &Tx{body: tx.body, lent: true} }

func (b *body) commit(op string) error {
	if err := b.end(op); err != nil {
		return err
	}
	b.store.commit(b)
	b.store.release()
	return nil
}

func (b *body) rollback(op string) error {
	if err := b.end(op); err != nil {
		return err
	}
	defer b.store.release()
	b.undoTo(0)
	return nil
}

func (b *body) end(op string) error {
	if b.ended {
		return &store.Error{Op: op, Kind: store.ErrTxEnded}
	}
	b.ended = true
	return nil
}

// undoTo runs what undoes everything after the first mark steps, the last first.
func (b *body) undoTo(mark int) {
	for len(b.undo) > mark {
		last := len(b.undo) - 1
		undo := b.undo[last]
		b.undo = b.undo[:last]
		undo()
	}
}

// get returns a key as the transaction sees it.
func (b *body) get(id store.ID) record {
	if r, ok := b.written[id]; ok {
		return r
	}
	return b.store.read(id)
}

// put changes a key as the transaction sees it.
func (b *body) put(id store.ID, r record) { put(b, b.written, id, r) }

// put changes what b has written, so that it can be undone.
func put[K comparable, V any](b *body, written map[K]V, id K, v V) {
	before, had := written[id]
	b.undo = append(b.undo, func() {
		if had {
			written[id] = before
		} else {
			delete(written, id)
		}
	})
	written[id] = v
}
