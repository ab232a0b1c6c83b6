import { expect, it } from 'vitest';
import { blocksOf, spans } from './markdown';

it('reads a table with its head and its rows, after a paragraph', () => {
  const text = 'The class follows from the exception:\n| exception | class |\n|---|---|\n| `ImportError`, `TypeError` | validation |\n| a \\| b | transient |\n\nMore.';
  const [before, table, after] = blocksOf(text);
  expect(before).toEqual({ kind: 'p', text: 'The class follows from the exception:' });
  expect(table).toEqual({ kind: 'table', rows: [['exception', 'class'], ['`ImportError`, `TypeError`', 'validation'], ['a | b', 'transient']] });
  expect(after).toEqual({ kind: 'p', text: 'More.' });
});

it('reads headings, lists, code and paragraphs', () => {
  const kinds = blocksOf('# T\n\n## What to do\n\n- one\n  more\n- two\n\n```sh\na | b |\n```\nText\nof two lines.').map((it) => [it.kind, it.text ?? it.items]);
  expect(kinds).toEqual([['h', 'What to do'], ['list', ['one more', 'two']], ['code', 'a | b |'], ['p', 'Text of two lines.']]);
});

it('takes no HTML', () => {
  expect(spans('a `b` <img src=x onerror=y>')).toEqual(['a ', '`b`', ' <img src=x onerror=y>']);
});
