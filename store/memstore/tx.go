package memstore

import (
	"context"
	"errors"

	"github.com/confirmexec/confirmexec/store"
)

// errLent is the answer to an executor that ends the transaction that it was lent.
var errLent = errors.New("memstore: an executor must not end the transaction that it was lent")

// Tx is a transaction of a [Store]: the only one that is open at its time. Begin one with [Store.Begin] and end it
// with Commit or Rollback; until then every other writer waits.
//
// An executor gets a Tx on loan, whose Commit and Rollback are refused. Its own effects, on a map or a slice of the
// test, are undone with the transaction or with its item if it says how: see [Tx.OnRollback].
//
// A Tx is not safe for concurrent use.
type Tx struct {
	body *body
	lent bool
}

// body is the transaction that several handles share.
type body struct {
	store   *Store
	written map[store.ID]record // what the transaction sees in place of what is committed
	undo    []func()            // in the order of what they undo
	ended   bool
}

// Begin begins a transaction as soon as no other is open. The error is [store.ErrLockTimeout] when that takes longer
// than the lock timeout or when ctx ends first. ctx does not bound the transaction.
func (s *Store) Begin(ctx context.Context) (*Tx, error) { return s.begin(ctx, "memstore: begin") }

func (s *Store) begin(ctx context.Context, op string) (*Tx, error) {
	if err := s.acquire(ctx, op); err != nil {
		return nil, err
	}
	return &Tx{body: &body{store: s, written: make(map[store.ID]record)}}, nil
}

// Commit makes the transaction's writes visible and ends it. The error is [store.ErrTxEnded] when it has ended already;
// a Tx that was lent to an executor is never committed.
func (tx *Tx) Commit() error {
	if err := tx.end("memstore: commit"); err != nil {
		return err
	}
	tx.body.store.commit(tx.body.written)
	tx.body.store.release()
	return nil
}

// Rollback undoes the transaction and ends it: what was registered with OnRollback runs, the last first. The error is
// [store.ErrTxEnded] when it has ended already; a Tx that was lent to an executor is never rolled back.
func (tx *Tx) Rollback() error {
	if err := tx.end("memstore: rollback"); err != nil {
		return err
	}
	defer tx.body.store.release()
	tx.body.undoTo(0)
	return nil
}

// OnRollback registers undo, which runs if what was done so far is undone: by Rollback, or when an item of Isolate
// fails in which it was registered. It lets an executor's effect in memory be part of the transaction:
//
//	ledger[item.ID] = amount
//	tx.OnRollback(func() { delete(ledger, item.ID) })
func (tx *Tx) OnRollback(undo func()) { tx.body.undo = append(tx.body.undo, undo) }

func (tx *Tx) ended() bool { return tx.body.ended }

func (tx *Tx) lend() *Tx { return &Tx{body: tx.body, lent: true} }

func (tx *Tx) end(op string) error {
	if tx.lent {
		return errLent
	}
	if tx.ended() {
		return &store.Error{Op: op, Kind: store.ErrTxEnded}
	}
	tx.body.ended = true
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
func (b *body) put(id store.ID, r record) {
	before, had := b.written[id]
	b.undo = append(b.undo, func() {
		if had {
			b.written[id] = before
		} else {
			delete(b.written, id)
		}
	})
	b.written[id] = r
}
