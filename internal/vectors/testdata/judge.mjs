// Reads lines of {kind, document in base64} and writes what the JavaScript implementation makes of each, in order: the form or the
// digest, or "refused".
import { readFileSync } from 'node:fs';
import * as contract from '../../../examples/js/contract.mjs';
import { Invalid, Malformed } from '../../../examples/js/json.mjs';

const judges = {
  confirmation: (document) => {
    const decoded = contract.decode(document);
    const items = decoded.items.map((item) => ({ ...item, params: Buffer.from(item.params) }));
    return `${decoded.idempotency_key} ${contract.digest({ ...decoded, items }).digest}`;
  },
  canonical: (document) => contract.canonicalJSON(document),
  surface_key: (document) => contract.checkSurfaceKey(document.toString()) ?? 'accepted',
};

for (const line of readFileSync(0, 'utf8').trimEnd().split('\n')) {
  const { kind, document } = JSON.parse(line);
  let verdict;
  try {
    verdict = judges[kind](Buffer.from(document, 'base64'));
  } catch (err) {
    if (!(err instanceof Invalid || err instanceof Malformed)) throw err;
    verdict = 'refused';
  }
  console.log(JSON.stringify(verdict));
}
