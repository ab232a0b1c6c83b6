// Completion for YAML from a JSON Schema: the keys that are allowed where the cursor is, and the values of an enum.

interface Schema {
  $ref?: string;
  $defs?: Record<string, Schema>;
  definitions?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  items?: Schema;
  additionalProperties?: Schema | boolean;
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

function resolve(root: Schema, schema: Schema | undefined, depth = 0): Schema[] {
  if (!schema || depth > 12) return [];
  const found: Schema[] = [];
  if (schema.$ref?.startsWith('#/')) {
    let at: unknown = root;
    for (const part of schema.$ref.slice(2).split('/')) at = (at as Record<string, unknown> | undefined)?.[part.replace(/~1/g, '/').replace(/~0/g, '~')];
    found.push(...resolve(root, at as Schema, depth + 1));
  }
  found.push(schema);
  for (const part of [...(schema.anyOf ?? []), ...(schema.oneOf ?? []), ...(schema.allOf ?? [])]) found.push(...resolve(root, part, depth + 1));
  return found;
}

export function schemasAt(root: Schema, path: string[]): Schema[] {
  let now = resolve(root, root);
  for (const part of path) {
    const next: Schema[] = [];
    for (const schema of now) {
      if (part === '[]') next.push(...resolve(root, schema.items));
      else {
        const own = schema.properties?.[part];
        if (own) next.push(...resolve(root, own));
        else if (typeof schema.additionalProperties === 'object') next.push(...resolve(root, schema.additionalProperties));
      }
    }
    now = next;
  }
  return now;
}

export function complete(schema: object, text: string, line: number, column: number): Found | null {
  const root = schema as Schema;
  const lines = text.split('\n');
  const before = (lines[line - 1] ?? '').slice(0, column);
  const value = /^(\s*(?:- )*)([\w.-]+)\s*:\s+["']?([\w.-]*)$/.exec(before);
  if (value) {
    const indent = value[1]!.length;
    const path = [...pathTo(lines, line, indent), ...(value[1]!.includes('- ') ? ['[]'] : [])];
    const own = schemasAt(root, [...path, value[2]!]);
    const words = new Set<string>();
    for (const it of own) {
      for (const word of it.enum ?? []) if (typeof word === 'string') words.add(word);
      if (typeof it.const === 'string') words.add(it.const);
      if (it.type === 'boolean' || (Array.isArray(it.type) && it.type.includes('boolean'))) words.add('true').add('false');
    }
    return words.size ? { kind: 'value', word: value[3]!, fresh: false, options: [...words].map((label) => ({ label })) } : null;
  }
  const key = /^(\s*)((?:- )*)([\w.-]*)$/.exec(before);
  if (!key) return null;
  const indent = key[1]!.length + key[2]!.length;
  const path = [...pathTo(lines, line, key[2] ? key[1]!.length : indent), ...(key[2] ? ['[]'] : [])];
  const found = new Map<string, Schema>();
  for (const it of schemasAt(root, path)) for (const [name, own] of Object.entries(it.properties ?? {})) if (!found.has(name)) found.set(name, own);
  if (!found.size) return null;
  return {
    kind: 'key',
    word: key[3]!,
    fresh: !key[3],
    options: [...found].map(([label, own]) => {
      const all = resolve(root, own);
      const kind = all.map((it) => (Array.isArray(it.type) ? it.type[0] : it.type)).find(Boolean);
      const info = all.map((it) => it.description).find(Boolean);
      return { label, detail: kind, info, apply: `${label}: ` };
    }),
  };
}
