// Runs the vectors on contract.mjs: node examples/js/run.mjs [folder of the vectors]. It ends with 'N passed, N failed, N topics not
// implemented: their names', and exits with 1 when one failed or when none ran.
import { readFileSync, readdirSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { isDeepStrictEqual } from 'node:util';
import * as contract from './contract.mjs';
import { Invalid, Malformed } from './json.mjs';

const folder = process.argv[2] ?? fileURLToPath(new URL('../../testdata/vectors/v1', import.meta.url));

// raw returns the bytes that a vector stands for: a text, {base64}, or {parts}, each of which may be repeated and numbered.
function raw(value) {
  if (typeof value === 'string') return Buffer.from(value, 'utf8');
  if (value.base64 !== undefined) return Buffer.from(value.base64, 'base64');
  if (!value.parts) return Buffer.from(value.text, 'utf8');
  return Buffer.concat(value.parts.flatMap((part) => {
    const once = raw(part);
    return Array.from({ length: part.times ?? 1 }, (_, i) => part.numbered ? Buffer.from(String(once).replaceAll('#', i)) : once);
  }));
}

const text = (value) => new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(raw(value));
const withBytes = (operation) => ({ ...operation, items: operation.items.map((item) => ({ ...item, params: raw(item.params) })) });

// Each topic turns what a vector gives into what it wants.
const topics = {
  confirmations: ({ document }) => contract.decode(raw(document)),
  proposals: ({ document }) => contract.decode(raw(document), { keyed: false }),
  limits: ({ document, limits }) => contract.decode(raw(document), { limits }) && { accepted: true },
  surface_keys: ({ surface_key }) => {
    try {
      contract.checkSurfaceKey(text(surface_key));
      return { accepted: true };
    } catch {
      return { accepted: false };
    }
  },
  staleness: ({ confirmation, current }) => {
    const drift = contract.drift(confirmation, current);
    return { stale: drift.length > 0, drift };
  },
  canonical: ({ document }) => ({ canonical: contract.canonicalJSON(raw(document)) }),
  digests: (operation) => contract.digest(withBytes(operation)),
  digest_pairs: ({ a, b }) => ({ same: contract.digest(withBytes(a)).digest === contract.digest(withBytes(b)).digest }),
  content_digests: ({ method, fields }) => contract.contentDigest(method, fields.map(({ name, kind, value }) => {
    const bytes = { text: raw, bytes: raw, int: contract.number, bool: () => Buffer.from([value === 'true' ? 1 : 0]) };
    return { name, kind, value: bytes[kind](value) };
  })),
  tallies: ({ states }) => contract.tally(states),
  retry_table: ({ code, codes }) => {
    if (codes) return { codes: contract.RETRY_TABLE.map((rule) => rule.code) };
    const rule = contract.RETRY_TABLE.find((row) => row.code === code);
    return rule ? { rule } : { unknown: true };
  },
  grpc_codes: ({ status }) => {
    const rule = contract.RETRY_TABLE.find((row) => row.grpc === status);
    return rule ? { code: rule.code } : { none: true };
  },
};

// got is what the implementation makes of a vector, in the vector's own terms.
function got(answer, { in: given, want, preimage }) {
  try {
    const result = answer(given);
    if (result.preimage === undefined) return result;
    return result.preimage === preimage ? { digest: result.digest } : { preimage: result.preimage };
  } catch (err) {
    if (err instanceof Malformed || (err instanceof Invalid && want.malformed)) return { malformed: true };
    return err instanceof Invalid ? { invalid: err.path } : { thrown: String(err) };
  }
}

const wanted = (want) => want.canonical === undefined ? want : { canonical: text(want.canonical) };

let [passed, failed] = [0, 0];
for (const [topic, answer] of Object.entries(topics)) {
  for (const file of readdirSync(`${folder}/${topic}`).filter((name) => name.endsWith('.json')).sort()) {
    for (const vector of JSON.parse(readFileSync(`${folder}/${topic}/${file}`, 'utf8')).cases) {
      const result = got(answer, vector);
      const same = isDeepStrictEqual(result, wanted(vector.want));
      same ? passed++ : failed++;
      if (!same) console.log(`FAIL ${topic}/${vector.name}\n  want ${JSON.stringify(vector.want)}\n  got  ${JSON.stringify(result)}`);
    }
  }
}
const missing = readdirSync(folder, { withFileTypes: true }).filter((d) => d.isDirectory() && !topics[d.name]).map((d) => d.name).sort();
console.log(`${passed} passed, ${failed} failed, ${missing.length} topics not implemented: ${missing.join(', ') || 'none'}`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
