package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/confirmexec/confirmexec/store"
)

// The statements of values. A value is a row of boundary 'value': item_id, which is text in every table, is its name, fence its
// revision, content its bytes. $1 is the tenant, $2 the name or the names, $3 the tenant that must be bound.
const (
	valueRow = `v.{tenant} = $1 AND v.item_id = $2 AND v.boundary = 'value'`

	// loadValueSQL has a row also for a value that does not exist.
	loadValueSQL = `SELECT v.fence, v.content, current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
    FROM (SELECT 1) AS one LEFT JOIN {table} v ON ` + valueRow

	// shareTurnSQL and takeTurnSQL make those that hold a value and those that change it take turns, until their transactions end:
	// row locks alone let new holders pass by a change that waits, for as long as they overlap, and PostgreSQL's lock_timeout bounds
	// its wait for each of them and not for all. Nothing but that rests on these locks. A change takes its turn only if the
	// revision looks right, so that a stale one keeps nobody waiting. The names have one order, as in metSQL.
	shareTurnSQL = `SELECT pg_advisory_xact_lock_shared(` + turn + `)
    FROM (SELECT name FROM unnest($2::text[]) AS name ORDER BY name) AS n WHERE current_setting({setting}, true) = $1::text`
	takeTurnSQL = `SELECT pg_advisory_xact_lock(` + turn + `)
    FROM (SELECT $2::text AS name) AS n LEFT JOIN {table} v ON v.{tenant} = $3 AND v.item_id = n.name AND v.boundary = 'value'
   WHERE current_setting({setting}, true) = $1::text AND coalesce(v.fence, 0) = $4::bigint`
	turn = `hashtextextended({table_literal} || ' ' || $1::text || ' ' || n.name, 0)`

	// holdValueSQL lets others hold the value too, and nobody change it. A check without this lock, or under FOR KEY SHARE, lets
	// a writer through whose value is being changed.
	holdValueSQL = `SELECT 1 FROM {table} v WHERE ` + valueRow + ` AND current_setting({setting}, true) = $3::text FOR SHARE`

	// makeValueSQL and moveValueSQL make the commit of a caller's transaction durable when they have changed a row, and not before.
	makeValueSQL = `INSERT INTO {table} ({tenant}, boundary, item_id, fence, claimed_at, content)
  SELECT $1, 'value', $2::text, 1, clock_timestamp(), $4::bytea WHERE current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, item_id) WHERE boundary = 'value' DO NOTHING RETURNING ` + raiseSync

	moveValueSQL = `UPDATE {table} v SET fence = v.fence + 1, content = $4::bytea, claimed_at = clock_timestamp()
   WHERE ` + valueRow + ` AND v.fence = $5::bigint AND current_setting({setting}, true) = $3::text RETURNING ` + raiseSync

	// metSQL holds the values that guards name, in the order of their names, and tells whether each has its guard's revision, $4, to
	// the flight and to the claim that follows in it (claimGuardedSQL); and whether the snapshot is the transaction's.
	metSQL = `WITH held AS MATERIALIZED (SELECT v.item_id, v.fence FROM {table} v
    WHERE v.{tenant} = $1 AND v.item_id = ANY ($2::text[]) AND v.boundary = 'value' AND current_setting({setting}, true) = $3::text
    ORDER BY v.item_id FOR SHARE)
  SELECT set_config('confirmexec.met', (count(*) = cardinality($2::text[]))::text, true) = 'true',
    current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
    FROM held JOIN unnest($2::text[], $4::bigint[]) AS g (name, revision) ON g.name = held.item_id AND g.revision = held.fence`

	// probeValuesSQL, which is always taken back, meets a serialization failure if a value stands otherwise than a snapshot shows it.
	probeValuesSQL = `INSERT INTO {table} ({tenant}, boundary, item_id, fence, claimed_at, content)
  SELECT $1, 'value', name, 1, clock_timestamp(), '' FROM unnest($2::text[]) AS name WHERE current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, item_id) WHERE boundary = 'value' DO NOTHING`
)

// Values implements [store.Store]. Each call runs inside a savepoint of tx, as those of In do, and is one round trip. A transaction
// that changes a value commits durably, whatever the role's synchronous_commit is.
func (s *Store) Values(tx pgx.Tx) store.Values { return values{&s.sql, joinedFlight{tx, &s.sql}} }

// values implements [store.Values].
type values struct {
	sql *statements
	via flight
}

// seenValue is a value as a snapshot shows it.
type seenValue struct {
	store.Value
	fixed bool // the snapshot is the transaction's
}

func (v values) Load(ctx context.Context, id store.ValueID) (store.Value, error) {
	if err := id.Validate(); err != nil {
		return store.Value{}, invalid("load value", err)
	}
	var seen seenValue
	if err := v.via.send(ctx, id.Tenant, false, []step{v.sql.loadStep(id, &seen)}); err != nil {
		return store.Value{}, fault("load value", err)
	}
	return seen.Value, nil
}

func (v values) Hold(ctx context.Context, id store.ValueID) (store.Value, error) {
	if err := id.Validate(); err != nil {
		return store.Value{}, invalid("hold value", err)
	}
	var seen seenValue
	var held int64
	err := v.via.send(ctx, id.Tenant, false, []step{
		v.sql.shareTurn(id.Tenant, []string{id.Name}),
		{sql: v.sql.holdValue, args: valueArgs(id), affected: &held},
		v.sql.loadStep(id, &seen),
	})
	if err == nil && held == 0 { // also one that was made after that
		err, seen.Value = v.sight(ctx, id, seen), store.Value{}
	}
	if err != nil {
		return store.Value{}, fault("hold value", err)
	}
	return seen.Value, nil
}

func (v values) Swap(ctx context.Context, p store.SwapParams) (store.Value, error) {
	if err := p.Validate(); err != nil {
		return store.Value{}, invalid("swap value", err)
	}
	var seen seenValue
	var swapped int64
	change := step{sql: v.sql.makeValue, args: append(valueArgs(p.ValueID), p.Content), affected: &swapped}
	if p.Revision > 0 {
		change.sql, change.args = v.sql.moveValue, append(change.args, p.Revision)
	}
	err := v.via.send(ctx, p.Tenant, false, []step{
		{sql: v.sql.takesTurn, args: []any{p.Tenant, p.Name, p.Tenant, p.Revision}},
		change,
		v.sql.loadStep(p.ValueID, &seen),
	})
	if err == nil && swapped == 0 {
		if err = v.sight(ctx, p.ValueID, seen); err == nil {
			return seen.Value, fault("swap value", store.ErrRevision)
		}
	}
	if err != nil {
		return store.Value{}, fault("swap value", err)
	}
	return seen.Value, nil
}

// sight is the error of a transaction whose snapshot is too old to tell how a value stands.
func (v values) sight(ctx context.Context, id store.ValueID, seen seenValue) error {
	if !seen.fixed {
		return nil
	}
	return probeValues(ctx, v.via, v.sql, id.Tenant, []string{id.Name})
}

func probeValues(ctx context.Context, via flight, sql *statements, tenant string, names []string) error {
	return via.send(ctx, tenant, true, []step{{sql: sql.probeValues, args: []any{tenant, names, tenant}}})
}

func (s *statements) loadStep(id store.ValueID, seen *seenValue) step {
	return step{sql: s.loadValue, args: []any{id.Tenant, id.Name}, scan: func(r pgx.Row) error {
		var revision *int64
		if err := r.Scan(&revision, &seen.Content, &seen.fixed); err != nil {
			return err
		}
		if revision != nil {
			seen.Revision = *revision
		}
		return nil
	}}
}

func (s *statements) shareTurn(tenant string, names []string) step {
	return step{sql: s.sharesTurn, args: []any{tenant, names}}
}

func valueArgs(id store.ValueID) []any { return []any{id.Tenant, id.Name, id.Tenant} }

// guards are what a flight checks before anything else, and what it found.
type guards struct {
	tenant     string
	all        []store.Guard
	met, fixed bool
}

func guardsOf(tenant string, all []store.Guard) *guards {
	return &guards{tenant: tenant, all: all, met: true}
}

// before puts the check before steps.
func (g *guards) before(sql *statements, steps []step) []step {
	if len(g.all) == 0 {
		return steps
	}
	revisions := make([]int64, len(g.all))
	for i, guard := range g.all {
		revisions[i] = guard.Revision
	}
	turn := sql.shareTurn(g.tenant, g.names())
	check := step{sql: sql.met, args: []any{g.tenant, g.names(), g.tenant, revisions},
		scan: func(r pgx.Row) error { return r.Scan(&g.met, &g.fixed) }}
	turn.keyless, check.keyless = true, true
	return append([]step{turn, check}, steps...)
}

func (g *guards) names() []string {
	names := make([]string, len(g.all))
	for i, guard := range g.all {
		names[i] = guard.Name
	}
	return names
}

// refusal is the error of a flight that has landed: ErrGuard if a guard was not met, as a snapshot shows that sees what stands.
func (g *guards) refusal(ctx context.Context, via flight, sql *statements) error {
	if g.met {
		return nil
	}
	if g.fixed {
		if err := probeValues(ctx, via, sql, g.tenant, g.names()); err != nil {
			return err
		}
	}
	return store.ErrGuard
}

// invalid is the error of parameters that are not valid.
func invalid(op string, err error) error { return &store.Error{Op: "pgstore: " + op, Kind: err} }
