// operation_recovery.v1 in JavaScript, written from the contract's documents alone: decoding, staleness, digest, tally, retry table.
import { createHash } from 'node:crypto';
import { Invalid, canonical, read } from './json.mjs';

const VERSION = 'operation_recovery.v1';
const DEFAULTS = {
  body: 1 << 20, items: 1000, item_id: 128, op: 128, params: 64 << 10, depth: 32, surface_key: 512, contract_version: 128,
};

// A limit can only be lowered: 0 and what is above the default count as the default.
const limitsOf = (given = {}) => Object.fromEntries(Object.entries(DEFAULTS).map(([name, most]) =>
  [name, !given[name] || given[name] > most ? most : given[name]]));

const size = (text) => Buffer.byteLength(text, 'utf8');

function checkText(path, text, limit) {
  if (text === '') throw new Invalid(path, 'is empty');
  if (size(text) > limit) throw new Invalid(path, 'is too long');
  if (/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Surrogate}]/u.test(text)) throw new Invalid(path, 'holds what does not show');
  if (/^\p{Z}|\p{Z}$/u.test(text)) throw new Invalid(path, 'has white space at an end');
}

const SCHEMES = new Set(('about blob callto cid data facetime file filesystem ftp ftps http https jar javascript livescript magnet ' +
  'mailto mid sftp sip sips sms tel urn vbscript view-source ws wss xmpp').split(' '));

// What a lenient reader takes for the ASCII characters that make a URL.
const LOOKALIKES = {
  '\ufe55': ':', '\ufe13': ':', '\ufe68': '\\', '\ufe6a': '%', '\u2024': '.', '\ufe52': '.', '\u3002': '.', '\uff61': '.',
};

const plain = (text) => text.replace(/[\uff01-\uff5e]/g, (c) => String.fromCharCode(c.charCodeAt(0) - 0xff01 + 0x21))
  .replace(/[\ufe55\ufe13\ufe68\ufe6a\u2024\ufe52\u3002\uff61]/g, (c) => LOOKALIKES[c]).toLowerCase().replaceAll('\\', '/');

function holdsURL(text) {
  if (text.includes('//') || text.includes('www.')) return true;
  return [...text.matchAll(/([a-z0-9+\-._]*):/g)].some(([, word]) => SCHEMES.has(word.replace(/^[-+.0-9]+/, '')));
}

// percentDecoded decodes every well-formed sequence once.
function percentDecoded(path, text) {
  const byte = (_, hex) => String.fromCharCode(parseInt(hex, 16));
  const bytes = Buffer.from(text, 'utf8').toString('latin1').replace(/%([0-9a-f]{2})/gi, byte);
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(Buffer.from(bytes, 'latin1'));
  } catch {
    throw new Invalid(path, 'hides bytes that are no text');
  }
}

export function checkSurfaceKey(key, limit = DEFAULTS.surface_key) {
  const path = '/surface_key';
  checkText(path, key, limit);
  for (let text = plain(key); ; text = plain(text)) {
    if (holdsURL(text)) throw new Invalid(path, 'is, holds or hides a URL');
    const decoded = percentDecoded(path, text);
    if (decoded === text) return;
    checkText(path, decoded, limit);
    text = decoded;
  }
}

const NIL = '00000000-0000-0000-0000-000000000000';

function checkKey(path, key) {
  if (!/^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i.test(key) || key === NIL) throw new Invalid(path, 'is no UUID');
}

// members returns an object's members, which must be exactly those of kinds, each of its kind.
function members(path, node, kinds) {
  if (node.kind !== 'object') throw new Invalid(path, 'is no object');
  for (const [name, member] of node.value) {
    const at = `${path}/${name.replaceAll('~', '~0').replaceAll('/', '~1')}`;
    if (!Object.hasOwn(kinds, name)) throw new Invalid(at, 'is unknown');
    if (member.kind !== kinds[name]) throw new Invalid(at, `is no ${kinds[name]}`);
  }
  for (const name of Object.keys(kinds)) {
    if (!node.value.has(name)) throw new Invalid(`${path}/${name}`, 'is missing');
  }
  return Object.fromEntries(Object.keys(kinds).map((name) => [name, node.value.get(name)]));
}

// decode reads a confirmation, or a proposal, which has no key. It throws Malformed or Invalid.
export function decode(bytes, { keyed = true, limits } = {}) {
  const most = limitsOf(limits);
  if (bytes.length > most.body) throw new Invalid('', 'is too long');
  const outside = 3; // the document, its list of items and the item are around params
  const { node, text } = read(bytes, Math.max(most.depth, 0) + outside);
  const doc = members('', node, {
    schema_version: 'string', ...(keyed && { idempotency_key: 'string' }),
    surface_key: 'string', contract_version: 'string', items: 'array',
  });
  if (doc.schema_version.value !== VERSION) throw new Invalid('/schema_version', 'is another version');
  if (keyed) checkKey('/idempotency_key', doc.idempotency_key.value);
  checkSurfaceKey(doc.surface_key.value, most.surface_key);
  checkText('/contract_version', doc.contract_version.value, most.contract_version);
  return {
    ...(keyed && { idempotency_key: doc.idempotency_key.value.toLowerCase() }),
    surface_key: doc.surface_key.value,
    contract_version: doc.contract_version.value,
    items: decodeItems(doc.items.value, text, most),
  };
}

function decodeItems(nodes, text, most) {
  if (nodes.length === 0) throw new Invalid('/items', 'is empty');
  if (nodes.length > most.items) throw new Invalid('/items', 'is too long');
  const seen = new Set();
  return nodes.map((node, i) => {
    const path = `/items/${i}`;
    const { item_id: id, op, params } = members(path, node, { item_id: 'string', op: 'string', params: 'object' });
    checkText(`${path}/item_id`, id.value, most.item_id);
    checkText(`${path}/op`, op.value, most.op);
    if (size(text.slice(params.start, params.end)) > most.params) throw new Invalid(`${path}/params`, 'is too long');
    const form = canonical(params, `${path}/params`);
    if (seen.has(id.value)) throw new Invalid(`${path}/item_id`, 'repeats an earlier id');
    seen.add(id.value);
    return { item_id: id.value, op: op.value, params: form };
  });
}

// canonicalJSON returns a whole document in its canonical form.
export const canonicalJSON = (bytes) => canonical(read(bytes, DEFAULTS.depth).node);

// drift names each axis that differs, with both values. An empty version matches nothing.
export function drift(confirmation, current) {
  const differs = (axis) => confirmation[axis] !== current[axis] || (axis === 'contract_version' && confirmation[axis] === '');
  return ['surface_key', 'contract_version'].filter(differs)
    .map((axis) => ({ axis, proposed: confirmation[axis], current: current[axis] }));
}

// number and text are how fields enter a digest: eight bytes, big endian; a text's length, and its bytes.
export const number = (n) => { const b = Buffer.alloc(8); b.writeBigUInt64BE(BigInt.asUintN(64, BigInt(n))); return b; };
const text = (s) => Buffer.concat([number(Buffer.from(s).length), Buffer.from(s)]);

// digest takes items whose params are bytes, and returns the preimage too.
export function digest({ surface_key, contract_version, items }) {
  const fields = items.flatMap(({ item_id, op, params }, i) => {
    const path = `/items/${i}/params`;
    const { node } = read(params, DEFAULTS.depth, path);
    if (node.kind !== 'object') throw new Invalid(path, 'is no object');
    return [text(item_id), text(op), text(canonical(node, path))];
  });
  return hashed('confirmexec/operation', text(surface_key), text(contract_version), number(items.length), ...fields);
}

// contentDigest is the digest of a mutation; a field's value is bytes already.
export function contentDigest(method, fields) {
  const sorted = [...fields].sort((a, b) => Buffer.compare(Buffer.from(a.name), Buffer.from(b.name)));
  return hashed('confirmexec/mutation', text(method), number(fields.length),
    ...sorted.flatMap(({ name, kind, value }) => [text(name), text(kind), text(value)]));
}

function hashed(domain, ...fields) {
  const preimage = Buffer.concat([text(domain), number(1), ...fields]);
  return { digest: createHash('sha256').update(preimage).digest('hex'), preimage: preimage.toString('hex') };
}

// tally counts by state; what is not a state counts as ambiguous, since nothing can be concluded from it.
export function tally(states) {
  const counts = { applied: 0, failed: 0, skipped: 0, ambiguous: 0 };
  for (const state of states) counts[Object.hasOwn(counts, state) ? state : 'ambiguous']++;
  return { ...counts, total: states.length };
}

// RETRY_TABLE has a row for each failure code: its gRPC status, what the caller does, and what the code says of the effect.
export const RETRY_TABLE = [
  ['INVALID_ARGUMENT', 3, 'fix_request', 'none'], ['UNAUTHENTICATED', 16, 'reauthenticate', 'none'],
  ['PERMISSION_DENIED', 7, 'stop_and_authorize', 'none'], ['FAILED_PRECONDITION', 9, 'refresh_state', 'none'],
  ['ABORTED', 10, 'reread_revision', 'unknown'], ['RESOURCE_EXHAUSTED', 8, 'await_release', 'none'],
  ['UNAVAILABLE', 14, 'reconcile', 'unknown'], ['DEADLINE_EXCEEDED', 4, 'treat_as_unknown', 'unknown'],
  ['NOT_FOUND', 5, 'do_not_substitute', 'none'], ['ALREADY_EXISTS', 6, 'read_existing', 'unknown'],
].map(([code, grpc, action, effect]) => ({ code, grpc, action, effect }));
