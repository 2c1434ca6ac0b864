package sqlitestore

import (
	"context"
	"database/sql"
	"time"

	"github.com/google/uuid"

	"github.com/confirmexec/confirmexec/store"
)

// keeper implements [store.Keeper].
type keeper struct{ store *Store }

func (k keeper) Seize(ctx context.Context, p store.SeizeParams) (s store.Standing, err error) {
	err = k.store.write(ctx, "sqlitestore: seize", func(ctx context.Context, q querier) error {
		_, err := affect(ctx, q, seizeClaim, p.Tenant, p.Key.String(), p.Attempt.String(), p.Lease.Seconds())
		if err != nil {
			return err
		}
		s, err = standing(ctx, q, p.ID, false)
		return err
	})
	if err != nil {
		return store.Standing{}, err
	}
	return s, nil
}

func (k keeper) Settle(ctx context.Context, p store.CompleteParams) error {
	return k.store.write(ctx, "sqlitestore: settle", func(ctx context.Context, q querier) error {
		return one(ctx, q, store.ErrFenced, settleClaim, fencedArgs(p.Fenced, notNil(p.Outcomes), p.Unsettled)...)
	})
}

func (k keeper) Observe(ctx context.Context, p store.ObserveParams) error {
	return k.store.write(ctx, "sqlitestore: observe", func(ctx context.Context, q querier) error {
		return one(ctx, q, store.ErrFenced, observeItem, fencedArgs(p.Fenced, p.Item, notNil(p.Outcome))...)
	})
}

func (k keeper) List(ctx context.Context, p store.ListParams) (all []store.Open, err error) {
	err = k.store.read(ctx, "sqlitestore: list", func(ctx context.Context, q querier) error {
		rows, err := q.QueryContext(ctx, listOpen, p.Tenant, p.After.String(), max(p.Limit, 0))
		if err != nil {
			return err
		}
		return each(rows, func() error {
			o, err := scanOpen(rows)
			all = append(all, o)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

func scanOpen(rows *sql.Rows) (o store.Open, err error) {
	var key, mode string
	var age float64
	if err := rows.Scan(&key, &mode, &age, &o.Completed, &o.Observed); err != nil {
		return o, err
	}
	o.Mode, o.Age = store.Mode(mode), time.Duration(age*float64(time.Second))
	o.Key, err = uuid.Parse(key)
	return o, err
}

func (k keeper) Purge(ctx context.Context, p store.PurgeParams) (purged int, err error) {
	err = k.store.write(ctx, "sqlitestore: purge", func(ctx context.Context, q querier) error {
		keys, err := purgeable(ctx, q, p)
		if err != nil {
			return err
		}
		purged = len(keys)
		return purge(ctx, q, p.Tenant, keys)
	})
	if err != nil {
		return 0, err
	}
	return purged, nil
}

func purgeable(ctx context.Context, q querier, p store.PurgeParams) (keys []string, err error) {
	rows, err := q.QueryContext(ctx, listPurgeable, //nolint:sqlclosecheck // each closes them
		p.Tenant, p.Retention.Seconds(), max(p.Limit, 0))
	if err != nil {
		return nil, err
	}
	err = each(rows, func() error {
		var key string
		err := rows.Scan(&key)
		keys = append(keys, key)
		return err
	})
	return keys, err
}

func purge(ctx context.Context, q querier, tenant string, keys []string) error {
	for _, key := range keys {
		for _, query := range purgeKey {
			if _, err := q.ExecContext(ctx, query, tenant, key); err != nil {
				return err
			}
		}
	}
	return nil
}

// each calls scan for each of rows, and closes them.
func each(rows *sql.Rows, scan func() error) error {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := scan(); err != nil {
			return err
		}
	}
	return rows.Err()
}
