package sqlitestore

// now is the database's clock: seconds since 1970, with milliseconds. It stands still within a statement.
const now = `unixepoch('subsec')`

// becomeWriter changes nothing, and so only makes sure that its transaction holds the writer.
const becomeWriter = `UPDATE agent_idempotency_key SET fence = fence WHERE 0`

// ?1 tenant, ?2 key, ?3 digest, ?4 expiry, ?5 content.
const insertProposal = `
INSERT INTO agent_idempotency_key
       (firm_id, boundary, request_id, digest, claimed_at, expires_at, completed_at, content)
VALUES (?1, 'proposal', ?2, ?3, ` + now + `, ` + now + ` + ?4, ` + now + `, ?5)
    ON CONFLICT (firm_id, request_id) WHERE boundary = 'proposal' DO NOTHING`

// ?1 tenant, ?2 key, ?3 digest, ?4 attempt, ?5 fence, ?6 mode, ?7 lease, ?8 accept unminted, ?9 content, ?10 completed,
// ?11 outcomes. A proposal, if there is one, decides alone.
const insertClaim = `
WITH proposal AS (
    SELECT digest = ?3 AND (?10 OR expires_at > ` + now + `) AS allows
      FROM agent_idempotency_key WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'proposal')
INSERT INTO agent_idempotency_key
       (firm_id, boundary, request_id, digest, attempt, fence, mode, claimed_at, lease_until,
        completed_at, unsettled, outcomes, content)
SELECT ?1, 'operation', ?2, ?3, ?4, ?5, ?6, ` + now + `, ` + now + ` + ?7,
       CASE WHEN ?10 THEN ` + now + ` END, CASE WHEN ?10 THEN 0 END, ?11,
       CASE WHEN NOT EXISTS (SELECT 1 FROM proposal) THEN ?9 END
 WHERE coalesce((SELECT allows FROM proposal), ?8)
    ON CONFLICT (firm_id, request_id) WHERE boundary = 'operation' DO NOTHING`

// operation is the claim of a key. ?1 tenant, ?2 key.
const operation = `
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'operation'`

// held is the claim under its fence. ?3 attempt, ?4 fence.
const held = operation + `
   AND attempt = ?3 AND fence = ?4 AND completed_at IS NULL`

const selectHeld = `SELECT fence FROM agent_idempotency_key` + held

// ?5 lease. A lease that is over is not renewed.
const renewLease = `
UPDATE agent_idempotency_key SET lease_until = ` + now + ` + ?5` + held + ` AND lease_until > ` + now

// ?5 outcomes, ?6 unsettled.
const completeClaim = `
UPDATE agent_idempotency_key SET completed_at = ` + now + `, outcomes = ?5, unsettled = ?6` + held

// ?5 item.
const startItem = `
INSERT INTO agent_idempotency_key (firm_id, boundary, request_id, item_id, attempt, fence, claimed_at)
SELECT firm_id, 'item', request_id, ?5, attempt, fence, ` + now + `
  FROM agent_idempotency_key` + held + `
    ON CONFLICT (firm_id, request_id, item_id) WHERE boundary = 'item' DO NOTHING`

// ?5 item, ?6 outcome. An outcome that is there stays.
const storeItem = `
INSERT INTO agent_idempotency_key
       (firm_id, boundary, request_id, item_id, attempt, fence, claimed_at, completed_at, outcomes)
SELECT firm_id, 'item', request_id, ?5, attempt, fence, ` + now + `, ` + now + `, ?6
  FROM agent_idempotency_key` + held + `
    ON CONFLICT (firm_id, request_id, item_id) WHERE boundary = 'item'
    DO UPDATE SET completed_at = excluded.completed_at, outcomes = excluded.outcomes
       WHERE agent_idempotency_key.completed_at IS NULL`

// ?3 attempt, ?4 lease.
const seizeClaim = `
UPDATE agent_idempotency_key SET fence = fence + 1, attempt = ?3, lease_until = ` + now + ` + ?4` + operation + `
   AND completed_at IS NULL AND lease_until <= ` + now

// ?3 attempt, ?4 fence, ?5 outcomes, ?6 unsettled. The completion is as old as the outcomes that stand.
const settleClaim = `
UPDATE agent_idempotency_key
   SET fence = fence + 1, completed_at = ` + now + `, outcomes = ?5, unsettled = ?6` + operation + `
   AND attempt = ?3 AND fence = ?4 AND unsettled`

// ?3 attempt, ?4 fence, ?5 item, ?6 outcome. An observation that is there stays, and its row counts as changed.
const observeItem = `
INSERT INTO agent_idempotency_key
       (firm_id, boundary, request_id, item_id, attempt, fence, claimed_at, completed_at, outcomes)
SELECT firm_id, 'observation', request_id, ?5, ?3, ?4, ` + now + `, ` + now + `, ?6
  FROM agent_idempotency_key` + operation + `
    ON CONFLICT (firm_id, request_id, item_id, attempt) WHERE boundary = 'observation'
    DO UPDATE SET fence = agent_idempotency_key.fence`

// observed tells whether the operation o has observations.
const observed = `EXISTS (SELECT 1 FROM agent_idempotency_key
       WHERE firm_id = o.firm_id AND request_id = o.request_id AND boundary = 'observation')`

// ?1 tenant, ?2 the last key of the page before, ?3 limit.
const listOpen = `
SELECT request_id, mode, ` + now + ` - claimed_at, completed_at IS NOT NULL, ` + observed + ` AS observed
  FROM agent_idempotency_key o
 WHERE firm_id = ?1 AND request_id > ?2 AND boundary = 'operation'
   AND (completed_at IS NULL AND lease_until <= ` + now + ` OR unsettled OR observed)
 ORDER BY request_id
 LIMIT ?3`

// listPurgeable tells the keys with payloads that nobody has needed for so long: those of settled operations, and of
// proposals that expired and were never claimed. ?1 tenant, ?2 retention, ?3 limit.
const listPurgeable = `
SELECT request_id
  FROM agent_idempotency_key o
 WHERE firm_id = ?1 AND boundary = 'operation' AND mode <> 'identity'
   AND completed_at <= ` + now + ` - ?2 AND NOT unsettled AND NOT ` + observed + `
   AND (outcomes IS NOT NULL OR content IS NOT NULL OR EXISTS (SELECT 1 FROM agent_idempotency_key
       WHERE firm_id = o.firm_id AND request_id = o.request_id AND boundary = 'proposal' AND content IS NOT NULL))
UNION ALL
SELECT request_id
  FROM agent_idempotency_key p
 WHERE firm_id = ?1 AND boundary = 'proposal' AND expires_at <= ` + now + ` - ?2 AND content IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM agent_idempotency_key
       WHERE firm_id = p.firm_id AND request_id = p.request_id AND boundary = 'operation')
 LIMIT ?3`

// purgeKey forgets the payloads of a key. Its rows stay. ?1 tenant, ?2 key.
var purgeKey = []string{
	`UPDATE agent_idempotency_key SET content = NULL, outcomes = NULL` + operation,
	`UPDATE agent_idempotency_key SET content = NULL
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'proposal'`,
	`UPDATE agent_idempotency_key SET outcomes = x''
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'item' AND outcomes IS NOT NULL`,
}

// selectStanding reads everything of a key in one statement, and so from one snapshot: the proposal, the claim, the
// items of a claim that is not completed, and the observations. ?1 tenant, ?2 key, ?3 with content and observations.
const selectStanding = `
SELECT boundary, digest, '' AS attempt, 0 AS fence, '' AS mode, expires_at <= ` + now + ` AS over, 1 AS done,
       0 AS unsettled, CASE WHEN ?3 THEN content END AS content, NULL AS outcomes, 0 AS told, '' AS item
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'proposal'
UNION ALL
SELECT boundary, digest, attempt, fence, mode, lease_until <= ` + now + `, completed_at IS NOT NULL,
       coalesce(unsettled, 0), CASE WHEN ?3 THEN content END, outcomes, outcomes IS NOT NULL, ''
  FROM agent_idempotency_key` + operation + `
UNION ALL
SELECT boundary, NULL, '', 0, '', 0, 0,
       0, NULL, outcomes, outcomes IS NOT NULL, item_id
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'item'
   AND EXISTS (SELECT 1 FROM agent_idempotency_key` + operation + ` AND completed_at IS NULL)
UNION ALL
SELECT boundary, NULL, attempt, 0, '', 0, 0,
       0, NULL, outcomes, 1, item_id
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'observation' AND ?3`
