package pgstore

import (
	"context"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/confirmexec/confirmexec/store"
)

// keeper implements [store.Keeper].
type keeper struct {
	sql *statements
	via ownFlight
}

func (k keeper) Seize(ctx context.Context, p store.SeizeParams) (store.Standing, error) {
	var s store.Standing
	err := k.via.send(ctx, p.Tenant, false, []step{
		{sql: k.sql.seize, args: []any{p.Tenant, p.Key.String(), p.Tenant, p.Attempt, p.Lease}},
		k.sql.standStep(p.ID, true, &s),
	})
	return s, fault("seize", err)
}

func (k keeper) Settle(ctx context.Context, p store.CompleteParams) error {
	var n int64
	err := k.via.send(ctx, p.Tenant, false,
		[]step{{sql: k.sql.settle, args: append(heldArgs(p.Fenced), p.Outcomes, p.Unsettled), affected: &n}})
	return only("settle", n, store.ErrFenced, err)
}

func (k keeper) Observe(ctx context.Context, p store.ObserveParams) error {
	var n int64
	err := k.via.send(ctx, p.Tenant, false,
		[]step{{sql: k.sql.observe, args: append(heldArgs(p.Fenced), p.Item, p.Outcome), affected: &n}})
	return only("observe", n, store.ErrFenced, err)
}

func (k keeper) List(ctx context.Context, p store.ListParams) (open []store.Open, err error) {
	err = k.via.send(ctx, p.Tenant, false, []step{{
		sql: k.sql.list, args: []any{p.Tenant, p.After.String(), p.Limit},
		rows: func(r pgx.Rows) error {
			open, err = pgx.CollectRows(r, scanOpen)
			return err
		},
	}})
	return open, fault("list", err)
}

func scanOpen(row pgx.CollectableRow) (o store.Open, err error) {
	var key, mode string
	var seconds float64
	if err := row.Scan(&key, &mode, &seconds, &o.Completed, &o.Observed); err != nil {
		return o, err
	}
	o.Mode, o.Age = store.Mode(mode), time.Duration(seconds*float64(time.Second))
	o.Key, err = uuid.Parse(key)
	return o, err
}

func (k keeper) Purge(ctx context.Context, p store.PurgeParams) (purged int, err error) {
	err = k.via.send(ctx, p.Tenant, false, []step{{
		sql: k.sql.purge, args: []any{p.Tenant, p.Retention, p.Limit},
		scan: func(r pgx.Row) error { return r.Scan(&purged) },
	}})
	return purged, fault("purge", err)
}
