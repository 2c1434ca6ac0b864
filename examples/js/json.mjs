// A strict JSON reader and the canonical form of RFC 8785. JSON.parse would not do: it keeps the last of two members with one
// name, rounds numbers, and lets lone surrogates through.

// Malformed: the bytes are not one JSON value in valid Unicode. Invalid: they are, but break a rule at a place (a JSON pointer).
export class Malformed extends Error {}
export class Invalid extends Error {
  constructor(path, problem) {
    super(`${path || 'document'}: ${problem}`);
    this.path = path;
  }
}

const pointer = (path, token) => `${path}/${String(token).replaceAll('~', '~0').replaceAll('/', '~1')}`;

// Every value is a node: {kind, value, start, end}. An object's value is a Map, whose order and names no engine meddles with.
class Reader {
  constructor(text, maxDepth) {
    Object.assign(this, { text, maxDepth, at: 0, depth: 0 });
  }
  fail(what) { throw new Malformed(`${what} at ${this.at}`); }
  skip() { while (this.at < this.text.length && ' \t\r\n'.includes(this.text[this.at])) this.at++; }
  take(c) { return this.text[this.at] === c && ++this.at > 0; }
  need(c) { if (!this.take(c)) this.fail(`no ${c}`); }

  match(pattern) { // pattern is sticky
    pattern.lastIndex = this.at;
    const found = pattern.exec(this.text);
    if (!found) this.fail('no value');
    this.at = pattern.lastIndex;
    return found[0];
  }

  value(path) {
    this.skip();
    const start = this.at;
    const node = this.node(path);
    Object.assign(node, { start, end: this.at });
    this.skip();
    return node;
  }

  node(path) {
    switch (this.text[this.at]) {
      case '{': return this.nested(path, 'object');
      case '[': return this.nested(path, 'array');
      case '"': return { kind: 'string', value: this.string() };
      case 't': case 'f': return { kind: 'boolean', value: this.match(/true|false/y) === 'true' };
      case 'n': return { kind: 'null', value: this.match(/null/y) && null };
    }
    return { kind: 'number', value: this.match(/-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/y) };
  }

  nested(path, kind) {
    if (++this.depth > this.maxDepth) throw new Invalid(path, 'is nested too deep');
    this.at++;
    const value = kind === 'object' ? this.members(path) : this.elements(path);
    this.depth--;
    return { kind, value };
  }

  members(path) {
    const members = new Map();
    this.skip();
    if (this.take('}')) return members;
    do {
      this.skip();
      const name = this.string();
      this.skip();
      this.need(':');
      if (members.has(name)) throw new Invalid(pointer(path, name), 'appears twice');
      members.set(name, this.value(pointer(path, name)));
    } while (this.take(','));
    this.need('}');
    return members;
  }

  elements(path) {
    const elements = [];
    this.skip();
    if (this.take(']')) return elements;
    do elements.push(this.value(pointer(path, elements.length))); while (this.take(','));
    this.need(']');
    return elements;
  }

  string() {
    const literal = this.match(/"([^"\\\u0000-\u001f]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*"/y);
    const text = JSON.parse(literal);
    if (/\p{Surrogate}/u.test(text)) this.fail('a lone surrogate');
    return text;
  }
}

// read returns the one value of a document, whose own place is path.
export function read(bytes, maxDepth, path = '') {
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw new Malformed('not UTF-8');
  }
  const reader = new Reader(text, maxDepth);
  const node = reader.value(path);
  if (reader.at < text.length) reader.fail('something after the value');
  return { node, text };
}

// isExact says whether a number's literal is the shortest decimal of a double. -0 is not: it would become 0.
function isExact(literal) {
  const number = Number(literal);
  if (!Number.isFinite(number)) return false;
  const [a, b] = [decimal(literal), decimal(String(number))];
  return a.digits === b.digits && (a.digits === '' ? !a.negative : a.exponent === b.exponent && a.negative === b.negative);
}

// decimal is the literal's exact value: 0.DIGITS * 10^exponent. The exponent is a safe integer wherever the number is finite.
function decimal(literal) {
  const [, sign, whole, fraction = '', exponent = '0'] = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:[eE](.+))?$/.exec(literal);
  const all = whole + fraction;
  const leading = /^0*/.exec(all)[0].length;
  return { negative: sign === '-', digits: all.slice(leading).replace(/0+$/, ''), exponent: Number(exponent) + whole.length - leading };
}

// canonical returns a node in the form of RFC 8785: names by their UTF-16 code units, numbers and texts as the language prints them.
export function canonical(node, path = '') {
  switch (node.kind) {
    case 'number':
      if (!isExact(node.value)) throw new Invalid(path, 'is not exactly a double');
      return String(Number(node.value));
    case 'array':
      return `[${node.value.map((element, i) => canonical(element, pointer(path, i))).join(',')}]`;
    case 'object': {
      const members = [...node.value.keys()].sort().map((name) =>
        `${JSON.stringify(name)}:${canonical(node.value.get(name), pointer(path, name))}`);
      return `{${members.join(',')}}`;
    }
  }
  return JSON.stringify(node.value);
}
