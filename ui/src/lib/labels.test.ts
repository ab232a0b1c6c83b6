import { expect, it } from 'vitest';
import { labelIn, labelText } from './labels';

it('writes labels as the filter reads them', () => {
  expect(labelText('team', 'a, b\\c')).toBe('team=a\\, b\\\\c');
});

it('knows a label in a search', () => {
  expect(labelIn('team=green')).toBe('team=green');
  expect(labelIn(' team=a,b ')).toBe('team=a\\,b');
  expect(labelIn('green')).toBeUndefined();
  expect(labelIn('=x')).toBeUndefined();
});
