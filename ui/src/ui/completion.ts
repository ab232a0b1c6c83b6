// Completion for YAML from a JSON Schema: the keys that are allowed where the cursor is, and the values of an enum.

export interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
  if?: Schema;
  then?: Schema;
  else?: Schema;
  anyOf?: Schema[];
  oneOf?: Schema[];
  allOf?: Schema[];
  enum?: unknown[];
  const?: unknown;
  type?: string | string[];
  description?: string;
}
export interface Found {
  kind: 'key' | 'value';
  word: string;
  /** Whether nothing else is on the line. */
  fresh: boolean;
  options: { label: string; detail?: string; info?: string; apply?: string }[];
}

/** The path of keys to the line, from the indentation of the lines before; `[]` is an item of a list. */
export function pathTo(lines: string[], line: number, indent: number): string[] {
  const path: string[] = [];
  let limit = indent;
  for (let i = line - 2; i >= 0 && limit > 0; i--) {
    const text = lines[i] ?? '';
    if (!text.trim() || text.trim().startsWith('#')) continue;
    const found = /^(\s*)((?:- )*)([\w.-]+)\s*:/.exec(text);
    const dashes = /^(\s*)((?:- )+)/.exec(text);
    const own = found ? found[1]!.length + found[2]!.length : (/^\s*/.exec(text)?.[0].length ?? 0);
    if (found && own < limit) {
      path.unshift(found[3]!);
      limit = own;
    }
    if (dashes && dashes[1]!.length < limit && own >= limit) {
      path.unshift('[]');
      limit = dashes[1]!.length;
    } else if (dashes && found && own === limit && dashes[1]!.length < limit) {
      path.unshift('[]');
      limit = dashes[1]!.length;
    }
  }
  return path;
}

/** What a schema says, with what it refers to. Of conditions by `kind` only those of the kind that is written are taken. */
function resolve(root: Schema, schema: Schema | undefined, kind: string | undefined, depth = 0): Schema[] {
  if (!schema || depth > 12) return [];
  const found: Schema[] = [];
  const ref = /#\/(.*)$/.exec(schema.$ref ?? '')?.[1];
  if (ref) {
    let at: unknown = root;
    for (const part of ref.split('/')) at = (at as Record<string, unknown> | undefined)?.[part.replace(/~1/g, '/').replace(/~0/g, '~')];
    found.push(...resolve(root, at as Schema, kind, depth + 1));
  }
  found.push(schema);
  const wanted = schema.if?.properties?.kind;
  const words = wanted && [...(wanted.enum ?? []), ...(wanted.const === undefined ? [] : [wanted.const])];
  const parts = words?.length ? [words.includes(kind) ? schema.then : schema.else] : [schema.then, schema.else];
  for (const part of [...parts, ...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]) found.push(...resolve(root, part, kind, depth + 1));
  return found;
}

export function schemasAt(root: Schema, path: string[], kind?: string): Schema[] {
  let now = resolve(root, root, kind);
  for (const part of path) {
    const next: Schema[] = [];
    for (const schema of now) {
      if (part === '[]') next.push(...resolve(root, schema.items, kind));
      else {
        const own = schema.properties?.[part];
        if (own) next.push(...resolve(root, own, kind));
        else if (typeof schema.additionalProperties === 'object') next.push(...resolve(root, schema.additionalProperties, kind));
      }
    }
    now = next;
  }
  return now;
}

/** Where the cursor is: the way to it, what is written of the word, and what the same map has already. */
interface Cursor {
  path: string[];
  /** The key whose value is written; absent if a key is written. */
  key?: string;
  word: string;
  /** Whether nothing else is on the line. */
  fresh: boolean;
  siblings: Map<string, string>;
}

const PAIR = /^([\w.$-]+)\s*:\s*(.*)$/;
const bare = (text: string) => text.trim().replace(/^["']|["']$/g, '');

/** The keys of the map that a line belongs to, with their values as they are written. */
function beside(lines: string[], line: number, indent: number): Map<string, string> {
  const found = new Map<string, string>();
  const look = (i: number): boolean => {
    const text = lines[i] ?? '';
    if (!text.trim() || text.trim().startsWith('#')) return true;
    const [, space, dashes, rest] = /^(\s*)((?:- )*)(.*)$/.exec(text)!;
    const own = space!.length + dashes!.length;
    if (own === indent) {
      const pair = PAIR.exec(rest!);
      if (pair) found.set(pair[1]!, bare(pair[2]!.replace(/\s#.*$/, '')));
    }
    return own > indent || (own === indent && !dashes);
  };
  // Up to the beginning of the item or of the map, and down to its end.
  for (let i = line - 2; i >= 0; i--) {
    const text = lines[i] ?? '';
    if (!look(i)) break;
    if (/^\s*- /.test(text) && /^\s*(?:- )*/.exec(text)![0].length === indent) break;
  }
  for (let i = line; i < lines.length; i++) {
    const text = lines[i] ?? '';
    if (text.trim() && (/^\s*(?:- )*/.exec(text)![0].length < indent || (/^\s*- /.test(text) && /^\s*(?:- )*/.exec(text)![0].length <= indent))) break;
    look(i);
  }
  return found;
}

/** The brackets that are open at the end of a text: where each begins, outside of quotes. */
function open(text: string): number[] {
  const found: number[] = [];
  let quote = '';
  for (let i = 0; i < text.length; i++) {
    const it = text[i]!;
    if (quote) quote = it === quote ? '' : quote;
    else if (it === '"' || it === "'") quote = it;
    else if (it === '{' || it === '[') found.push(i);
    else if (it === '}' || it === ']') found.pop();
  }
  return quote ? [] : found;
}

export function cursorAt(text: string, line: number, column: number): Cursor | null {
  const lines = text.split('\n');
  const before = (lines[line - 1] ?? '').slice(0, column);
  const [, space, dashes] = /^(\s*)((?:- )*)/.exec(before)!;
  const indent = space!.length + dashes!.length;
  const way = [...pathTo(lines, line, dashes ? space!.length : indent), ...(dashes ? ['[]'] : [])];
  const brackets = open(before);
  if (brackets.length) {
    // A map or a list on one line: `tool: { kind: shell, cmds: [`.
    let from = indent;
    let siblings = new Map<string, string>();
    for (const [i, at] of brackets.entries()) {
      const head = before.slice(from, at);
      const key = /([\w.$-]+)\s*:\s*$/.exec(head)?.[1];
      if (key) way.push(key);
      else if (i && before[brackets[i - 1]!] === '[') way.push('[]');
      from = at + 1;
      siblings = new Map();
    }
    const inner = before.slice(from);
    const cut = inner.lastIndexOf(',');
    for (const part of inner.slice(0, Math.max(0, cut)).split(',')) {
      const pair = PAIR.exec(part.trim());
      if (pair) siblings.set(pair[1]!, bare(pair[2]!));
    }
    const rest = inner.slice(cut + 1).trimStart();
    if (before[brackets.at(-1)!] === '[') return /^["']?[\w.-]*$/.test(rest) ? { path: [...way, '[]'], key: '', word: rest.replace(/^["']/, ''), fresh: true, siblings } : null;
    const value = /^([\w.$-]+)\s*:\s*["']?([\w.-]*)$/.exec(rest);
    if (value) return { path: way, key: value[1]!, word: value[2]!, fresh: false, siblings };
    return /^[\w.-]*$/.test(rest) ? { path: way, word: rest, fresh: !rest, siblings } : null;
  }
  const siblings = beside(lines, line, indent);
  const value = /^(\s*(?:- )*)([\w.$-]+)\s*:\s+["']?([\w.-]*)$/.exec(before);
  if (value) return { path: way, key: value[2]!, word: value[3]!, fresh: false, siblings };
  const key = /^(\s*)((?:- )*)([\w.-]*)$/.exec(before);
  return key ? { path: way, word: key[3]!, fresh: !key[3], siblings } : null;
}

/** Fields whose values are names of steps, in all languages. */
const REFERS = /^(dependsOn|depends_on|incompatibleDuties|next|arcs)$/;
/** The names of the steps of a text. */
export function stepNames(text: string): string[] {
  const found = [...text.matchAll(/^\s*(?:- )+(?:\{\s*)?(?:step|name|stepId|actionId|stepType)\s*:\s*["']?([\w.-]+)/gm)].map((it) => it[1]!);
  return [...new Set(found)];
}

export function complete(schema: object, text: string, line: number, column: number): Found | null {
  const root = schema as Schema;
  const cursor = cursorAt(text, line, column);
  if (!cursor) return null;
  const { path, word, siblings } = cursor;
  const kind = siblings.get('kind');
  const parent = path.filter((it) => it !== '[]').at(-1) ?? '';
  if (cursor.key !== undefined || (path.at(-1) === '[]' && REFERS.test(parent) && parent !== 'arcs')) {
    const own = schemasAt(root, cursor.key ? [...path, cursor.key] : path, kind);
    const words = new Set<string>();
    if (REFERS.test(cursor.key || parent) || (cursor.key === 'step' && path.includes('arcs'))) {
      // The step that is written: the last one that has begun before the cursor.
      const lines = text.split('\n').slice(0, line);
      const mine = stepNames([...lines.slice(0, -1), (lines.at(-1) ?? '').slice(0, column)].join('\n')).at(-1);
      for (const name of stepNames(text)) if (name !== mine && name !== word) words.add(name);
    }
    for (const it of own) {
      for (const option of it.enum ?? []) if (typeof option === 'string') words.add(option);
      if (typeof it.const === 'string') words.add(it.const);
      if (it.type === 'boolean' || (Array.isArray(it.type) && it.type.includes('boolean'))) words.add('true').add('false');
    }
    return words.size ? { kind: 'value', word, fresh: false, options: [...words].map((label) => ({ label })) } : null;
  }
  const found = new Map<string, Schema>();
  for (const it of schemasAt(root, path, kind)) for (const [name, own] of Object.entries(it.properties ?? {})) if (!found.has(name) && !siblings.has(name)) found.set(name, own);
  if (!found.size) return null;
  return {
    kind: 'key',
    word,
    fresh: cursor.fresh,
    options: [...found].map(([label, own]) => {
      const all = resolve(root, own, undefined);
      const type = all.map((it) => (Array.isArray(it.type) ? it.type[0] : it.type)).find(Boolean);
      const info = all.map((it) => it.description).find(Boolean);
      return { label, detail: type, info, apply: `${label}: ` };
    }),
  };
}

/** What a text without a language can begin with: a small definition of each language, and the first keys of all of them. */
export function beginnings(templates: Record<string, string>, text: string): Found | null {
  const word = /^\s*([\w.-]*)\s*$/.exec(text.replace(/^\s*#.*$/gm, ''))?.[1];
  if (word === undefined) return null;
  const keys = new Map<string, string[]>();
  for (const [language, template] of Object.entries(templates)) for (const hit of template.matchAll(/^([\w$]+):/gm)) keys.set(hit[1]!, [...(keys.get(hit[1]!) ?? []), language]);
  const whole = Object.entries(templates).map(([language, template]) => ({ label: language, detail: 'a small definition', info: `A definition in the language ${language} to begin with.`, apply: template }));
  const one = [...keys].map(([label, languages]) => ({ label, detail: languages.join(', '), apply: `${label}: ` }));
  return { kind: 'key', word, fresh: true, options: [...whole, ...one] };
}
