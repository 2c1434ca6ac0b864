package pgstore

// Every statement of the store. Names are rendered once; values are always parameters, but for the boundary: a conflict
// target whose predicate is a parameter fails as soon as PostgreSQL tries a generic plan for it.
//
// $1 is the tenant and $2 the key in all of them.

const (
	// raiseSync makes the commit durable at least as far as "on", for a role whose default is less; it never lowers it (S28b).
	raiseSync = `set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

	// bindSQL binds the tenant for the rest of the store's own transaction.
	bindSQL = `SELECT set_config({setting}, $1, true), set_config('lock_timeout', {lock_timeout}, true), ` + raiseSync

	// joinSQL binds the tenant in a caller's transaction if it is unbound, and tells what is bound. The caller's lock timeout
	// is kept for restoreSQL.
	joinSQL = `SELECT set_config({setting}, coalesce(nullif(current_setting({setting}, true), ''), $1), true),
  set_config('confirmexec.lock_timeout', current_setting('lock_timeout'), true),
  set_config('lock_timeout', {lock_timeout}, true), ` + raiseSync

	restoreSQL = `SELECT set_config('lock_timeout', current_setting('confirmexec.lock_timeout'), true)`

	proposeSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, digest, claimed_at, expires_at, completed_at, content)
  SELECT $1, 'proposal', $2, $4::bytea, clock_timestamp(), clock_timestamp() + $5::interval, clock_timestamp(), $6::bytea
   WHERE current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'proposal' DO NOTHING`

	// claimSQL is where exactly once is decided: of all that try, at every moment and from every process, the unique index on
	// (tenant, request_id) WHERE boundary = 'operation' lets one row in. It waits for another one's insert that is under way.
	// Nothing is inserted unless the key's proposal has this digest and has not expired.
	claimSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until,
    completed_at, content, outcomes)
  SELECT $1, 'operation', $2, $4::bytea, $5::uuid, 1, $6::text, clock_timestamp(), clock_timestamp() + $7::interval,
         CASE WHEN $8::bytea IS NOT NULL THEN clock_timestamp() END, CASE WHEN p.request_id IS NULL THEN $9::bytea END, $8::bytea
    FROM (SELECT 1) AS one
    LEFT JOIN {table} p ON p.{tenant} = $1 AND p.request_id = $2 AND p.boundary = 'proposal'
   WHERE current_setting({setting}, true) = $3::text
     AND CASE WHEN p.request_id IS NULL THEN $10::boolean
              ELSE p.digest = $4::bytea AND ($8::bytea IS NOT NULL OR p.expires_at > clock_timestamp()) END
  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'operation' DO NOTHING`

	// probeSQL is a claim that is always taken back: the unique index makes it wait for one that is under way, whatever that
	// one's content.
	probeSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until)
  SELECT $1, 'operation', $2, decode(repeat('00', 32), 'hex'), $4::uuid, 1, 'probe', clock_timestamp(), clock_timestamp()
   WHERE current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'operation' DO NOTHING`

	// held finds the standing claim under its fence: a write that goes through it changes nothing once the fence has moved.
	held = `c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND c.attempt = $4 AND c.fence = $5
     AND c.completed_at IS NULL AND current_setting({setting}, true) = $3::text`

	startItemSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, item_id, attempt, fence, claimed_at)
  SELECT c.{tenant}, 'item', c.request_id, $6::text, c.attempt, c.fence, clock_timestamp() FROM {table} c WHERE ` + held + `
  ON CONFLICT ({tenant}, request_id, item_id) WHERE boundary = 'item' DO NOTHING`

	finishItemSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, item_id, attempt, fence, claimed_at, completed_at, outcomes)
  SELECT c.{tenant}, 'item', c.request_id, $6::text, c.attempt, c.fence, clock_timestamp(), clock_timestamp(), $7::bytea
    FROM {table} c WHERE ` + held + `
  ON CONFLICT ({tenant}, request_id, item_id) WHERE boundary = 'item'
  DO UPDATE SET completed_at = excluded.completed_at, outcomes = excluded.outcomes WHERE {table}.completed_at IS NULL`

	renewSQL = `UPDATE {table} c SET lease_until = clock_timestamp() + $6::interval WHERE ` + held

	completeSQL = `UPDATE {table} c SET completed_at = clock_timestamp(), outcomes = $6::bytea WHERE ` + held

	// standSQL tells everything that is known of a key. It is a statement of its own, after the claim's: under READ COMMITTED
	// its snapshot sees who won.
	standSQL = `SELECT p.digest, p.expires_at <= clock_timestamp(), CASE WHEN $3::boolean THEN p.content END,
    c.digest, c.attempt, c.fence, c.mode, c.lease_until <= clock_timestamp(), c.completed_at IS NOT NULL, c.outcomes,
    CASE WHEN $3::boolean THEN c.content END,
    CASE WHEN c.completed_at IS NULL THEN (SELECT array_agg(i.item_id ORDER BY i.item_id) FROM {table} i
      WHERE i.{tenant} = c.{tenant} AND i.request_id = c.request_id AND i.boundary = 'item') END,
    CASE WHEN c.completed_at IS NULL THEN (SELECT array_agg(i.outcomes ORDER BY i.item_id) FROM {table} i
      WHERE i.{tenant} = c.{tenant} AND i.request_id = c.request_id AND i.boundary = 'item') END,
    current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
  FROM (SELECT 1) AS one
  LEFT JOIN {table} p ON p.{tenant} = $1 AND p.request_id = $2 AND p.boundary = 'proposal'
  LEFT JOIN {table} c ON c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation'`
)

// statements are the SQL texts with the configured names in them.
type statements struct {
	bind, join, propose, claim, probe, startItem, finishItem, renew, complete, stand string
}

func (c Config) statements() statements {
	return statements{
		bind: c.render(bindSQL), join: c.render(joinSQL), propose: c.render(proposeSQL), claim: c.render(claimSQL),
		probe:     c.render(probeSQL),
		startItem: c.render(startItemSQL), finishItem: c.render(finishItemSQL), renew: c.render(renewSQL),
		complete: c.render(completeSQL), stand: c.render(standSQL),
	}
}
