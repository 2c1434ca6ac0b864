package sqlitestore

import (
	"context"
	"database/sql"
	"errors"

	"github.com/confirmexec/confirmexec/store"
)

// A value is a row of boundary 'value': item_id is its name, fence its revision, content its bytes. ?1 tenant, ?2 name.
const (
	value = `
 WHERE firm_id = ?1 AND item_id = ?2 AND boundary = 'value'`

	selectValue = `SELECT fence, content FROM agent_idempotency_key` + value

	// ?3 content.
	makeValue = `
INSERT INTO agent_idempotency_key (firm_id, boundary, item_id, fence, claimed_at, content)
VALUES (?1, 'value', ?2, 1, ` + now + `, ?3)
    ON CONFLICT (firm_id, item_id) WHERE boundary = 'value' DO NOTHING`

	// ?3 content, ?4 revision.
	moveValue = `
UPDATE agent_idempotency_key SET fence = fence + 1, content = ?3, claimed_at = ` + now + value + ` AND fence = ?4`
)

// Values implements [store.Store]. To hold a value, or to check guards, is to become SQLite's only writer.
func (s *Store) Values(tx *sql.Tx) store.Values { return values{callerTx{tx}} }

// values implements [store.Values].
type values struct{ tx callerTx }

func (v values) Load(ctx context.Context, id store.ValueID) (store.Value, error) {
	return v.in(ctx, v.tx.read, "sqlitestore: load value", id.Validate(), func(ctx context.Context, q querier) (store.Value, error) {
		return load(ctx, q, id)
	})
}

func (v values) Hold(ctx context.Context, id store.ValueID) (store.Value, error) {
	return v.in(ctx, v.tx.write, "sqlitestore: hold value", id.Validate(), func(ctx context.Context, q querier) (store.Value, error) {
		if _, err := affect(ctx, q, becomeWriter); err != nil {
			return store.Value{}, err
		}
		return load(ctx, q, id)
	})
}

func (v values) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	return v.in(ctx, v.tx.write, "sqlitestore: swap value", p.Validate(), func(ctx context.Context, q querier) (store.Value, error) {
		return swap(ctx, q, p)
	})
}

// in runs body unless the parameters are not valid.
func (v values) in(ctx context.Context, run runner, op string, invalid error,
	body func(context.Context, querier) (store.Value, error),
) (val store.Value, err error) {
	if invalid != nil {
		return val, refused(op, invalid)
	}
	err = run(ctx, op, func(ctx context.Context, q querier) error {
		val, err = body(ctx, q)
		return err
	})
	if err != nil && !errors.Is(err, store.ErrRevision) {
		val = store.Value{}
	}
	return val, err
}

// load reads a value; the zero Value if it does not exist.
func load(ctx context.Context, q querier, id store.ValueID) (v store.Value, err error) {
	rows, err := q.QueryContext(ctx, selectValue, id.Tenant, id.Name)
	if err != nil {
		return v, err
	}
	err = scanOne(rows, &v.Revision, &v.Content)
	if errors.Is(err, sql.ErrNoRows) {
		return store.Value{}, nil
	}
	v.Content = notNil(v.Content) // the driver reads an empty blob as nil
	return v, err
}

func swap(ctx context.Context, q querier, p store.SwapParams) (store.Value, error) {
	query, args := makeValue, []any{p.Tenant, p.Name, p.Content}
	if p.Revision > 0 {
		query, args = moveValue, append(args, p.Revision)
	}
	n, err := affect(ctx, q, query, args...)
	if err != nil {
		return store.Value{}, err
	}
	v, err := load(ctx, q, p.ValueID)
	if err == nil && n == 0 {
		err = store.ErrRevision
	}
	return v, err
}

// meet refuses unless every guard is met. The only writer is the lock.
func meet(ctx context.Context, q querier, tenant string, guards []store.Guard) error {
	if len(guards) == 0 {
		return nil
	}
	if _, err := affect(ctx, q, becomeWriter); err != nil {
		return err
	}
	for _, g := range guards {
		v, err := load(ctx, q, store.ValueID{Tenant: tenant, Name: g.Name})
		if err != nil {
			return err
		}
		if v.Revision != g.Revision {
			return store.ErrGuard
		}
	}
	return nil
}

// refused is the error of parameters that are not valid.
func refused(op string, err error) error { return &store.Error{Op: op, Kind: err} }
