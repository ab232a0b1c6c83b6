import { expect, test } from 'vitest';
import { hasLines, inputKind, isSent, linesOf } from './inputs';

test('the default of an input says its kind, and a value of another kind is JSON', () => {
  expect(inputKind('Hello', undefined)).toBe('text');
  expect(inputKind(3, 4)).toBe('number');
  expect(inputKind(false, true)).toBe('flag');
  expect(inputKind(undefined, { a: 1 })).toBe('json');
  expect(inputKind(null, 'x')).toBe('text');
  expect(inputKind('Hello', { a: 1 })).toBe('json');
  expect(inputKind(3, 'three')).toBe('json');
  expect(inputKind({ a: 1 }, null)).toBe('json');
});

test('a text with line breaks gets a field that keeps them', () => {
  expect(hasLines('one\ntwo')).toBe(true);
  expect(hasLines('one two')).toBe(false);
  expect(hasLines(undefined)).toBe(false);
  expect(linesOf('one\ntwo')).toBe(3);
  expect(linesOf('\n'.repeat(100))).toBe(12);
});

test('an empty field is sent only where a text was emptied', () => {
  expect(isSent('', undefined)).toBe(false);
  expect(isSent('', null)).toBe(false);
  expect(isSent('', 'Hello')).toBe(true);
  expect(isSent('x', '')).toBe(true);
  expect(isSent(undefined, 3)).toBe(false);
  expect(isSent(null, null)).toBe(true);
});
