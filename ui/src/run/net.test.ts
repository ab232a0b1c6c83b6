import { expect, test } from 'vitest';
import { firstView, found, MARGIN, type Layout } from './net';

const steps = [
  { id: 'load', name: 'load', word: 'SUCCESS' },
  { id: 'upload', name: 'upload', word: 'FAILED' },
  { id: 'loader#2', name: 'loader', word: 'FAILED' },
  { id: 'fail-over', name: 'fail-over', word: 'PENDING' },
];

test('a step is found by its name, or by its state', () => {
  expect(found(steps, 'LOAD').map((it) => it.name)).toEqual(['load', 'loader', 'upload']);
  expect(found(steps, 'failed').map((it) => it.id)).toEqual(['upload', 'loader#2']);
  expect(found(steps, 'fail').map((it) => it.name)).toEqual(['fail-over', 'upload', 'loader']);
  expect(found(steps, 'nothing')).toEqual([]);
});

test('a large graph begins at its left edge, and is not too small to be seen', () => {
  const drawn: Layout = { places: [{ x: 0, y: -1000 }, { x: 11_784, y: 938 }], labels: [], down: false, width: 12_000, height: 2000 };
  const view = firstView(drawn, { width: 1000, height: 500 });
  expect(view.zoom).toBe(0.3);
  expect(view.x).toBe(MARGIN);
  expect(view.y - 1000 * view.zoom).toBe(MARGIN);
});
