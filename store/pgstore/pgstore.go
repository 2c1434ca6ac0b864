package pgstore

import (
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/confirmexec/confirmexec/store"
)

// Store is a [store.Store] on one PostgreSQL database. It is safe for concurrent use and holds no state but its pool; make
// it with [New] or [NewWithConfig].
type Store struct {
	pool *pgxpool.Pool
	sql  statements
}

var _ store.Store[pgx.Tx] = (*Store)(nil)

// New returns a Store with the default [Config]. The pool stays the caller's: it must lead to the primary, as a role that
// row-level security binds.
func New(pool *pgxpool.Pool) *Store {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		return nil // unreachable: the defaults are on the allow-list
	}
	return &Store{pool: pool, sql: cfg.statements()}
}

// NewWithConfig returns a Store for the names in cfg. The error is a *[contract.InvalidError] that names the field.
func NewWithConfig(pool *pgxpool.Pool, cfg Config) (*Store, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	return &Store{pool: pool, sql: cfg.statements()}, nil
}

// Own implements [store.Store].
func (s *Store) Own() store.Claims { return claims{sql: &s.sql, via: ownFlight{s.pool, &s.sql}} }

// Keep implements [store.Store]. Listing and purging read a tenant's operations in the order of their keys: their cost grows with
// what a tenant has, unlike that of every other call.
func (s *Store) Keep() store.Keeper { return keeper{sql: &s.sql, via: ownFlight{s.pool, &s.sql}} }

// In implements [store.Store]. Each call runs inside a savepoint of tx, with the store's lock timeout, which is restored.
// The tenant is bound in tx if it is unbound, accepted if equal, and refused with [store.ErrTenantMismatch] otherwise.
func (s *Store) In(tx pgx.Tx) store.Claims { return claims{sql: &s.sql, via: joinedFlight{tx, &s.sql}} }
