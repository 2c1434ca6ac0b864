// Package sqlitestore is the embedded store: one SQLite file on one host, through database/sql and a driver without
// cgo.
//
// The file is written through one connection, in WAL mode and with synchronous=FULL, so a claim that was acknowledged
// survives the loss of power. Any number of processes of the host may share it. It must not be on a network file
// system.
//
// # Transactions
//
// An executor writes to its own tables in the same file, in a transaction that its caller began on [Store.DB] or that
// the broker began with [Store.Begin]. Such a transaction is IMMEDIATE: it holds SQLite's only writer, and every other
// writer waits for its end. So keep it short, and do not call the store's own claims ([Store.Own]) while holding it:
// such a write, and a lookup behind the barrier, would wait for itself, and ends in [store.ErrBusy] after the
// lock timeout. Use [Store.In].
//
// While an executor has a transaction nothing commits: a COMMIT of the executor's own is refused, and undoes the transaction; so is
// every statement after that, or after SQLite has undone the transaction itself, as it does with a write that a context interrupts.
// Isolate and Commit then say [store.ErrTxEnded]. A transaction of [Store.Begin] is lent from its begin to its end, one that its
// caller began while [Store.Isolate] calls.
//
// # Tenants
//
// SQLite has no row-level security. Every statement names its tenant, and that is all that keeps tenants apart (S16).
package sqlitestore

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"time"

	"github.com/confirmexec/confirmexec/store"
)

// Config adjusts a [Store]. The zero value of a field means its default.
type Config struct {
	// LockTimeout is how long a write, or a lookup behind the barrier, waits for the writer, and how long a transaction
	// begun on DB waits for other processes. Default (also when negative): 5 seconds.
	LockTimeout time.Duration
}

const (
	defaultLockTimeout = 5 * time.Second
	maxReaders         = 4
)

// Store is a [store.Store] in one SQLite file. Make one with [Open] and close it; the zero value is not usable.
//
// Leases and expiries are judged by the host's clock. A cancelled context ends a wait for the writer; a write that has
// begun is carried to its end. A Store is safe for concurrent use.
type Store struct {
	writer      *sql.DB // one connection
	readers     *sql.DB // query only
	lockTimeout time.Duration
	loan        loan
	doubt       atomic.Bool // a COMMIT failed that may stand in the log: see overwrite
}

var _ store.Store[*sql.Tx] = (*Store)(nil)

// DB returns the file's only writer connection. Callers begin the transactions there that they pass to [Store.In] and
// [Store.Isolate], and may keep tables of their own in the file. Do not close it, and do not begin transactions with a
// context that is cancelled before their end: database/sql rolls them back.
func (s *Store) DB() *sql.DB { return s.writer }

// Close closes the file for new work. Transactions that are open go on, and the last of them closes it.
func (s *Store) Close() error { return errors.Join(s.readers.Close(), s.writer.Close()) }

// Own returns the claims of the store's own connections. A write of it, or a lookup behind the barrier, ends in
// [store.ErrBusy] when the caller itself holds a transaction begun on DB.
func (s *Store) Own() store.Claims { return claims{write: s.write, read: s.read} }

// In returns the claims of tx, which must have been begun on DB. Its calls fail with [store.ErrTxEnded] once tx has
// ended.
func (s *Store) In(tx *sql.Tx) store.Claims {
	t := callerTx{tx}
	return claims{write: t.write, read: t.read}
}

// Keep returns what settles and keeps claims. Each call but List waits for the writer, as the writes of Own do.
func (s *Store) Keep() store.Keeper { return keeper{s} }

// querier is what [sql.DB], [sql.Conn] and [sql.Tx] have in common.
type querier interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// runner runs body in the transaction that it stands for, all or nothing. Every error is a *store.Error of this op.
type runner func(ctx context.Context, op string, body func(context.Context, querier) error) error
