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
        completed_at, outcomes, content)
SELECT ?1, 'operation', ?2, ?3, ?4, ?5, ?6, ` + now + `, ` + now + ` + ?7,
       CASE WHEN ?10 THEN ` + now + ` END, ?11, CASE WHEN NOT EXISTS (SELECT 1 FROM proposal) THEN ?9 END
 WHERE coalesce((SELECT allows FROM proposal), ?8)
    ON CONFLICT (firm_id, request_id) WHERE boundary = 'operation' DO NOTHING`

// held is the claim under its fence. ?1 tenant, ?2 key, ?3 attempt, ?4 fence.
const held = `
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'operation'
   AND attempt = ?3 AND fence = ?4 AND completed_at IS NULL`

// ?5 lease.
const renewLease = `UPDATE agent_idempotency_key SET lease_until = ` + now + ` + ?5` + held

// ?5 outcomes.
const completeClaim = `UPDATE agent_idempotency_key SET completed_at = ` + now + `, outcomes = ?5` + held

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

// selectStanding reads everything of a key in one statement, and so from one snapshot: the proposal, the claim, and the
// items of a claim that is not completed. ?1 tenant, ?2 key, ?3 with content.
const selectStanding = `
SELECT boundary, digest, '' AS attempt, 0 AS fence, '' AS mode, expires_at <= ` + now + ` AS over, 1 AS done,
       CASE WHEN ?3 THEN content END AS content, NULL AS outcomes, '' AS item
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'proposal'
UNION ALL
SELECT boundary, digest, attempt, fence, mode, lease_until <= ` + now + `, completed_at IS NOT NULL,
       CASE WHEN ?3 THEN content END, outcomes, ''
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'operation'
UNION ALL
SELECT boundary, NULL, '', 0, '', 0, completed_at IS NOT NULL,
       NULL, outcomes, item_id
  FROM agent_idempotency_key
 WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'item'
   AND EXISTS (SELECT 1 FROM agent_idempotency_key
                WHERE firm_id = ?1 AND request_id = ?2 AND boundary = 'operation' AND completed_at IS NULL)`
