// What the fields of a start form are made of: the kind of each input, and what of it is sent.

export type InputKind = 'flag' | 'number' | 'text' | 'json';

function kind(value: unknown): InputKind {
  if (typeof value === 'boolean') return 'flag';
  if (typeof value === 'number') return 'number';
  return typeof value === 'string' || value === null || value === undefined ? 'text' : 'json';
}

/** The kind of an input, from its default. A run that is repeated may have another kind of value: then the value is JSON, which has
 * every kind. */
export function inputKind(declared: unknown, start: unknown): InputKind {
  const own = kind(declared ?? start);
  return start === null || start === undefined || kind(start) === own ? own : 'json';
}

/** Whether a text needs a field of several lines: one of a single line would take the line breaks away. */
export const hasLines = (value: unknown): value is string => typeof value === 'string' && /[\r\n]/.test(value);

/** How many lines the field of a text has. */
export const linesOf = (value: string) => Math.min(12, Math.max(3, value.split('\n').length + 1));

/** Whether a value is sent. An empty field is no value, unless somebody has emptied a text: then the default must not come back. */
export const isSent = (value: unknown, was: unknown) => value !== undefined && (value !== '' || (typeof was === 'string' && was !== ''));
