package pgstore

// Every statement of the store. Names are rendered once; values are always parameters, but for the boundary: a conflict
// target whose predicate is a parameter fails as soon as PostgreSQL tries a generic plan for it.
//
// $1 is the tenant and $2 the key in all of them.

const (
	// raiseSync makes the commit durable at least as far as "on", for a role whose default is less; it never lowers it (S28b).
	raiseSync = `set_config('synchronous_commit', CASE WHEN current_setting('synchronous_commit') IN ('off', 'local', 'remote_write')
    THEN 'on' ELSE current_setting('synchronous_commit') END, true)`

	// waitSQL bounds the waits for locks until restoreSQL.
	waitSQL = `set_config('confirmexec.lock_timeout', current_setting('lock_timeout'), true),
  set_config('lock_timeout', {lock_timeout}, true)`

	// bindSQL binds the tenant for the rest of the store's own transaction, and makes its commit durable.
	bindSQL = `SELECT set_config({setting}, $1, true), ` + waitSQL + `, ` + raiseSync

	// joinSQL binds the tenant in a caller's transaction if it is unbound, and tells what is bound.
	joinSQL = `SELECT set_config({setting}, coalesce(nullif(current_setting({setting}, true), ''), $1), true)`

	restoreSQL = `SELECT set_config('lock_timeout', current_setting('confirmexec.lock_timeout'), true)`

	proposeSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, digest, claimed_at, expires_at, completed_at, content)
  SELECT $1, 'proposal', $2, $4::bytea, clock_timestamp(), clock_timestamp() + $5::interval, clock_timestamp(), $6::bytea
   WHERE current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'proposal' DO NOTHING`

	// claimSQL is where exactly once is decided: of all that try, at every moment and from every process, the unique index on
	// (tenant, request_id) WHERE boundary = 'operation' lets one row in. It waits for another one's insert that is under way.
	// Nothing is inserted unless the key's proposal has this digest and has not expired.
	claimSQL = claim + claimIf

	// claimGuardedSQL inserts nothing either unless metSQL, before it in the flight, has found every guard met.
	claimGuardedSQL = claim + ` AND current_setting('confirmexec.met', true) = 'true'` + claimIf

	claim = `INSERT INTO {table} ({tenant}, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until,
    completed_at, content, outcomes, unsettled)
  SELECT $1, 'operation', $2, $4::bytea, $5::uuid, 1, $6::text, clock_timestamp(), clock_timestamp() + $7::interval,
         CASE WHEN $8::bytea IS NOT NULL THEN clock_timestamp() END, CASE WHEN p.request_id IS NULL THEN $9::bytea END, $8::bytea,
         CASE WHEN $8::bytea IS NOT NULL THEN false END
    FROM (SELECT 1) AS one
    LEFT JOIN {table} p ON p.{tenant} = $1 AND p.request_id = $2 AND p.boundary = 'proposal'
   WHERE current_setting({setting}, true) = $3::text`
	claimIf = `
     AND CASE WHEN p.request_id IS NULL THEN $10::boolean
              ELSE p.digest = $4::bytea AND ($8::bytea IS NOT NULL OR p.expires_at > clock_timestamp()) END
  ON CONFLICT ({tenant}, request_id) WHERE boundary = 'operation' DO NOTHING`

	// inTimeSQL fails, and takes the claim before it along, if that claim waited past the proposal's expiry: it was let in by an
	// expiry that was judged before the wait, while somebody else may have been told that the key has expired.
	inTimeSQL = `SELECT 1 / CASE WHEN p.expires_at <= clock_timestamp() THEN 0 ELSE 1 END
    FROM {table} p JOIN {table} c ON c.{tenant} = p.{tenant} AND c.request_id = p.request_id AND c.boundary = 'operation'
   WHERE p.{tenant} = $1 AND p.request_id = $2 AND p.boundary = 'proposal' AND c.attempt = $3::uuid AND c.completed_at IS NULL`

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
  SELECT c.{tenant}, 'item', c.request_id, $6::text, c.attempt, c.fence, clock_timestamp() FROM {table} c WHERE ` + live + `
  ON CONFLICT ({tenant}, request_id, item_id) WHERE boundary = 'item' DO NOTHING`

	// finishItemSQL stores an item's outcome: with its effect's commit under the fence alone, else (finishLiveItemSQL) only
	// together with the renewal of the lease.
	finishItemSQL     = finishItem + held + finishedItem
	finishLiveItemSQL = finishItem + live + finishedItem

	finishItem = `INSERT INTO {table} ({tenant}, boundary, request_id, item_id, attempt, fence, claimed_at, completed_at, outcomes)
  SELECT c.{tenant}, 'item', c.request_id, $6::text, c.attempt, c.fence, clock_timestamp(), clock_timestamp(), $7::bytea
    FROM {table} c WHERE `
	finishedItem = `
  ON CONFLICT ({tenant}, request_id, item_id) WHERE boundary = 'item'
  DO UPDATE SET completed_at = excluded.completed_at, outcomes = excluded.outcomes WHERE {table}.completed_at IS NULL`

	// renewSQL never renews a lease that has ended: nobody sees a key go back from unresolved to in progress.
	renewSQL = `UPDATE {table} c SET lease_until = clock_timestamp() + $6::interval WHERE ` + held + ` AND c.lease_until > clock_timestamp()`

	// live is held by an attempt whose lease runs, as it does in the flight that has just renewed it.
	live = held + ` AND c.lease_until > clock_timestamp()`

	// raiseSQL makes the commit of a caller's transaction durable once the claim is in it, and not before.
	raiseSQL = `SELECT ` + raiseSync + ` FROM {table} c WHERE ` + held

	completeSQL = `UPDATE {table} c SET completed_at = clock_timestamp(), outcomes = $6::bytea, unsettled = $7::boolean WHERE ` + held

	// holdSQL keeps the claim as it is until the transaction ends: neither Seize nor Complete passes by its lock.
	holdSQL = `SELECT 1 FROM {table} c WHERE ` + held + ` FOR NO KEY UPDATE`

	// guardSQL fails, and so takes the COMMIT behind it along, unless the claim is held: a write that touches no row would not.
	guardSQL = `SELECT 1 / count(*) FROM {table} c WHERE ` + held

	// awaitSQL waits for whatever holds the standing claim.
	awaitSQL = `SELECT 1 FROM {table} c WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation'
     AND c.completed_at IS NULL FOR NO KEY UPDATE`

	// emitSQL writes to the log and to no table: a COMMIT behind it waits for a synchronous standby, which one of a transaction that
	// has written nothing does not. Without a standby it costs a flush of the log.
	emitSQL = `SELECT pg_logical_emit_message(true, 'confirmexec', '')`

	seizeSQL = `UPDATE {table} c SET fence = c.fence + 1, attempt = $4::uuid, lease_until = clock_timestamp() + $5::interval
   WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND c.completed_at IS NULL
     AND c.lease_until <= clock_timestamp() AND current_setting({setting}, true) = $3::text`

	settleSQL = `UPDATE {table} c SET fence = c.fence + 1, completed_at = clock_timestamp(), outcomes = $6::bytea, unsettled = $7::boolean
   WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND c.attempt = $4 AND c.fence = $5
     AND c.unsettled AND current_setting({setting}, true) = $3::text`

	// observeSQL touches an observation that is there already, so that no row means no claim.
	observeSQL = `INSERT INTO {table} ({tenant}, boundary, request_id, item_id, attempt, fence, claimed_at, completed_at, outcomes)
  SELECT c.{tenant}, 'observation', c.request_id, $6::text, $4::uuid, $5::bigint, clock_timestamp(), clock_timestamp(), $7::bytea
    FROM {table} c WHERE c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation' AND current_setting({setting}, true) = $3::text
  ON CONFLICT ({tenant}, request_id, item_id, attempt) WHERE boundary = 'observation' DO UPDATE SET attempt = excluded.attempt`

	observed = `EXISTS (SELECT FROM {table} o WHERE o.{tenant} = c.{tenant} AND o.request_id = c.request_id AND o.boundary = 'observation')`

	// listSQL walks the tenant's operations in the order of their keys, which for minted ones is that of their minting.
	listSQL = `SELECT c.request_id::text, c.mode, extract(epoch FROM clock_timestamp() - c.claimed_at)::float8,
    c.completed_at IS NOT NULL, ` + observed + `
    FROM {table} c WHERE c.{tenant} = $1 AND c.request_id > $2 AND c.boundary = 'operation'
     AND (c.completed_at IS NULL AND c.lease_until <= clock_timestamp() OR c.unsettled OR ` + observed + `)
   ORDER BY c.request_id LIMIT $3::int`

	// purgeSQL names each boundary on its own, so that each uses its partial index.
	purgeSQL = `WITH due AS (
    SELECT c.request_id FROM {table} c WHERE c.{tenant} = $1 AND c.boundary = 'operation' AND c.outcomes IS NOT NULL AND NOT c.unsettled
       AND c.mode <> 'identity' AND c.completed_at < clock_timestamp() - $2::interval AND NOT ` + observed + `
    UNION ALL
    SELECT p.request_id FROM {table} p WHERE p.{tenant} = $1 AND p.boundary = 'proposal' AND p.content IS NOT NULL
       AND p.expires_at < clock_timestamp() - $2::interval AND NOT EXISTS (SELECT FROM {table} c
         WHERE c.{tenant} = p.{tenant} AND c.request_id = p.request_id AND c.boundary = 'operation')
    LIMIT $3::int),
  operations AS (UPDATE {table} t SET outcomes = NULL, content = NULL FROM due
    WHERE t.{tenant} = $1 AND t.request_id = due.request_id AND t.boundary = 'operation'),
  proposals AS (UPDATE {table} t SET content = NULL FROM due
    WHERE t.{tenant} = $1 AND t.request_id = due.request_id AND t.boundary = 'proposal'),
  items AS (UPDATE {table} t SET outcomes = '' FROM due
    WHERE t.{tenant} = $1 AND t.request_id = due.request_id AND t.boundary = 'item' AND t.completed_at IS NOT NULL)
  SELECT count(*) FROM due`

	// standSQL tells everything that is known of a key. It is a statement of its own, after the claim's: under READ COMMITTED
	// its snapshot sees who won.
	standSQL = `SELECT p.digest, p.expires_at <= clock_timestamp(), CASE WHEN $3::boolean THEN p.content END,
    c.digest, c.attempt, c.fence, c.mode, c.lease_until <= clock_timestamp(), c.completed_at IS NOT NULL,
    coalesce(c.unsettled, false), c.outcomes,
    CASE WHEN $3::boolean THEN c.content END,
    CASE WHEN c.completed_at IS NULL THEN (SELECT array_agg(i.item_id ORDER BY i.item_id) FROM {table} i
      WHERE i.{tenant} = c.{tenant} AND i.request_id = c.request_id AND i.boundary = 'item') END,
    CASE WHEN c.completed_at IS NULL THEN (SELECT array_agg(i.outcomes ORDER BY i.item_id) FROM {table} i
      WHERE i.{tenant} = c.{tenant} AND i.request_id = c.request_id AND i.boundary = 'item') END,
    CASE WHEN $3::boolean THEN (SELECT array_agg(o.item_id ORDER BY o.item_id, o.attempt) FROM {table} o
      WHERE o.{tenant} = c.{tenant} AND o.request_id = c.request_id AND o.boundary = 'observation') END,
    CASE WHEN $3::boolean THEN (SELECT array_agg(o.attempt ORDER BY o.item_id, o.attempt) FROM {table} o
      WHERE o.{tenant} = c.{tenant} AND o.request_id = c.request_id AND o.boundary = 'observation') END,
    CASE WHEN $3::boolean THEN (SELECT array_agg(o.outcomes ORDER BY o.item_id, o.attempt) FROM {table} o
      WHERE o.{tenant} = c.{tenant} AND o.request_id = c.request_id AND o.boundary = 'observation') END,
    current_setting('transaction_isolation') IN ('repeatable read', 'serializable')
  FROM (SELECT 1) AS one
  LEFT JOIN {table} p ON p.{tenant} = $1 AND p.request_id = $2 AND p.boundary = 'proposal'
  LEFT JOIN {table} c ON c.{tenant} = $1 AND c.request_id = $2 AND c.boundary = 'operation'`
)

// statements are the SQL texts with the configured names in them.
type statements struct {
	bind, join, wait                                         string
	propose, claim, inTime, raise, probe, await, hold, guard string
	startItem, finishItem, finishLiveItem, renew, complete   string
	stand, seize, settle, observe, list, purge               string
	loadValue, holdValue, makeValue, moveValue               string
	met, claimGuarded, probeValues, sharesTurn, takesTurn    string
}

func (c Config) statements() statements {
	return statements{
		bind: c.render(bindSQL), join: c.render(joinSQL), wait: c.render("SELECT " + waitSQL),
		propose: c.render(proposeSQL), claim: c.render(claimSQL), inTime: c.render(inTimeSQL), raise: c.render(raiseSQL),
		probe: c.render(probeSQL), await: c.render(awaitSQL), hold: c.render(holdSQL), guard: c.render(guardSQL),
		startItem: c.render(startItemSQL), finishItem: c.render(finishItemSQL), finishLiveItem: c.render(finishLiveItemSQL),
		renew: c.render(renewSQL), complete: c.render(completeSQL),
		stand: c.render(standSQL), seize: c.render(seizeSQL), settle: c.render(settleSQL), observe: c.render(observeSQL),
		list: c.render(listSQL), purge: c.render(purgeSQL),
		loadValue: c.render(loadValueSQL), holdValue: c.render(holdValueSQL),
		makeValue: c.render(makeValueSQL), moveValue: c.render(moveValueSQL),
		sharesTurn: c.render(shareTurnSQL), takesTurn: c.render(takeTurnSQL),
		met: c.render(metSQL), claimGuarded: c.render(claimGuardedSQL), probeValues: c.render(probeValuesSQL),
	}
}
