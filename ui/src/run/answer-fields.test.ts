import { expect, test } from 'vitest';
import { aboutWork, fieldsOf, readFields, type AnswerField } from './answer-fields';

const field = (name: string, type: AnswerField['type'], text: string): AnswerField => ({ name, type, text });

test('fields become values of their types', () => {
  const read = readFields([field('shelf', 'text', 'B 12'), field('pages', 'number', '3,5'), field('signed', 'yes or no', 'yes'), field('who', 'JSON', '["ada"]'), field('', 'text', ' ')]);
  expect(read.wrong.size).toBe(0);
  expect(read.value).toEqual({ shelf: 'B 12', pages: 3.5, signed: true, who: ['ada'] });
  expect(fieldsOf(read.value)?.map((it) => it.type)).toEqual(['text', 'number', 'yes or no', 'JSON']);
});

test('what is wrong is said of its field, and nothing is given', () => {
  const read = readFields([field('a', 'number', 'many'), field('', 'text', 'x'), field('b', 'text', ''), field('b', 'text', ''), field('c', 'JSON', '{')]);
  expect([...read.wrong.keys()]).toEqual([0, 1, 3, 4]);
  expect(read.value).toBeUndefined();
});

test('no field is no output', () => {
  expect(readFields([]).value).toBeUndefined();
  expect(readFields([field('', 'text', '')])).toEqual({ value: undefined, wrong: new Map() });
});

test('the definition says what the work is', () => {
  const net = { steps: [{ name: 'file', input: { copies: 2 }, work: { kind: 'wait', on: { what: 'manual' } } }], extra: { actions: { file: { operation: 'paper:file', portFamily: 'office', outputSchemaRef: 'schemas/file.json' } } } };
  expect(aboutWork(net as unknown as Parameters<typeof aboutWork>[0], 'file')).toEqual({ description: undefined, operation: 'paper:file', by: 'port family office', input: { copies: 2 }, schema: 'schemas/file.json' });
});
