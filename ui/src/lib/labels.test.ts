import { expect, it } from 'vitest';
import { labelIn, labelsIn, labelText, pairsOf, shownLabel, withLabel } from './labels';

it('writes labels as the filter reads them', () => {
  expect(labelText('team', 'a, b\\c')).toBe('team=a\\, b\\\\c');
});

it('knows a label in a search', () => {
  expect(labelIn('team=green')).toBe('team=green');
  expect(labelIn(' team=a,b ')).toBe('team=a\\,b');
  expect(labelIn('Größe=XL 🚚')).toBe('Größe=XL 🚚');
  expect(labelIn('green')).toBeUndefined();
  expect(labelIn('=x')).toBeUndefined();
});

it('adds a label to a filter, and takes it apart again', () => {
  expect(withLabel('', 'team=blue')).toBe('team=blue');
  expect(withLabel('team=blue, note=a\\, b', 'team=red')).toBe('note=a\\, b,team=red');
  expect(labelsIn('note=a\\, b,team=red').map(shownLabel)).toEqual(['note=a, b', 'team=red']);
});

it('reads labels of a form, and says which part is none', () => {
  expect(pairsOf('team=blue, x=, note=a\\, b')).toEqual([['team', 'blue'], ['x', ''], ['note', 'a, b']]);
  expect(pairsOf('')).toEqual([]);
  expect(() => pairsOf('team=blue, bad label')).toThrow('bad label');
  expect(() => pairsOf('team=blue,team=red')).toThrow('team is there twice');
  expect(pairsOf([labelText('a', 'b,c\\d')].join(', '))).toEqual([['a', 'b,c\\d']]);
});
