// Package memstore is a store in memory, for the unit tests of executors.
//
// IT IS NOT DURABLE. Everything is gone when the process ends, so it keeps none of the library's promises across a
// crash or a restart: a confirmed operation may run twice. Never use it in a service. Use pgstore, or sqlitestore on
// one host.
//
// Within one process it behaves as every other store does and passes the same suite, package storetest. It works like
// SQLite: one writer at a time, while readers see what is committed.
package memstore

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// Config adjusts a [Store]. The zero value of a field means its default.
type Config struct {
	// Now is the store's clock: leases and expiries are judged by it. It must be safe for concurrent use.
	// Default: time.Now.
	Now func() time.Time

	// LockTimeout is how long a write, a Begin, a BeginTx or a lookup behind the barrier waits for the transaction that
	// holds the store's only writer. Default (also when negative): 5 seconds.
	LockTimeout time.Duration
}

// Store is a [store.Store] in memory. It is not durable: see the package comment.
//
// Make one with [New]; the zero value is not usable. A Store is safe for concurrent use.
type Store struct {
	now         func() time.Time
	lockTimeout time.Duration
	writer      chan struct{} // holds a token while a transaction is open

	mu        sync.Mutex // guards what is committed
	committed map[store.ID]record
	values    map[store.ValueID]store.Value
}

var _ store.Store[*Tx] = (*Store)(nil)

// New returns an empty Store. A nil cfg means the defaults.
func New(cfg *Config) *Store {
	s := &Store{
		now:         time.Now,
		lockTimeout: 5 * time.Second,
		writer:      make(chan struct{}, 1),
		committed:   make(map[store.ID]record),
		values:      make(map[store.ValueID]store.Value),
	}
	if cfg != nil && cfg.Now != nil {
		s.now = cfg.Now
	}
	if cfg != nil && cfg.LockTimeout > 0 {
		s.lockTimeout = cfg.LockTimeout
	}
	return s
}

// Own returns the claims of the store itself: every call is a transaction of its own. A write while the caller itself
// holds a [Tx] waits for that Tx, and so ends in [store.ErrBusy].
func (s *Store) Own() store.Claims { return ownClaims{s} }

// In returns the claims of tx. Its calls fail with [store.ErrTxEnded] once tx has ended.
func (s *Store) In(tx *Tx) store.Claims { return txClaims{tx} }

// Isolate implements [store.Store]. The handle that fn gets refuses Commit and Rollback. Effects that are not the
// store's own are undone with an item if they were registered with [Tx.OnRollback].
func (s *Store) Isolate(_ context.Context, tx *Tx, n int, fn func(i int, tx *Tx) error) ([]error, error) {
	const op = "memstore: isolate"
	undone := make([]error, n)
	for i := range n {
		if tx.ended() {
			return nil, &store.Error{Op: op, Kind: store.ErrTxEnded}
		}
		mark := len(tx.body.undo)
		err := fn(i, tx.lend())
		if tx.ended() {
			return nil, &store.Error{Op: op, Kind: store.ErrTxEnded, Cause: err}
		}
		if errors.Is(err, store.ErrRetryTx) {
			return nil, &store.Error{Op: op, Kind: store.ErrRetryTx, Cause: err}
		}
		if err != nil {
			tx.body.undoTo(mark)
		}
		undone[i] = err
	}
	return undone, nil
}

// acquire takes the store's only writer. The end of the wait, by the lock timeout or by ctx, is ErrLockTimeout: nothing
// was written. A ctx that is done before the wait is an error without a kind.
func (s *Store) acquire(ctx context.Context, op string) error {
	if err := ctx.Err(); err != nil {
		return &store.Error{Op: op, Cause: err}
	}
	timeout := time.NewTimer(s.lockTimeout)
	defer timeout.Stop()
	select {
	case s.writer <- struct{}{}:
		return nil
	case <-ctx.Done():
		return &store.Error{Op: op, Kind: store.ErrBusy, Cause: ctx.Err()}
	case <-timeout.C:
		return &store.Error{Op: op, Kind: store.ErrBusy}
	}
}

func (s *Store) release() { <-s.writer }

// read returns what is committed of a key.
func (s *Store) read(id store.ID) record {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed[id]
}

// readTenant returns what is committed of a tenant's keys.
func (s *Store) readTenant(tenant string) map[store.ID]record {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make(map[store.ID]record)
	for id, r := range s.committed {
		if id.Tenant == tenant {
			all[id] = r
		}
	}
	return all
}

// commit makes what a transaction wrote visible.
func (s *Store) commit(b *body) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.committed, b.written)
	maps.Copy(s.values, b.values)
}
