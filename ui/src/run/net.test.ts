import { expect, test } from 'vitest';
import { firstView, found, HEIGHT, MARGIN, READABLE, WIDTH, type Layout } from './net';

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

test('a large graph begins with the step that is looked for, large enough to be read', () => {
  const drawn: Layout = { places: [{ x: 0, y: -1000 }, { x: 11_784, y: 938 }, { x: 6000, y: 0 }], labels: [], down: false, width: 12_000, height: 2000 };
  const room = { width: 1000, height: 500 };
  const first = firstView(drawn, room);
  expect(first.zoom).toBe(READABLE);
  // The first step is at the edge of the graph: nothing is seen beyond it.
  expect(first.x).toBe(MARGIN);
  expect(first.y - 1000 * first.zoom).toBe(MARGIN);
  const middle = firstView(drawn, room, 2);
  expect(middle.x + (6000 + WIDTH / 2) * middle.zoom).toBeCloseTo(500);
  expect(middle.y + (HEIGHT / 2) * middle.zoom).toBeCloseTo(250);
});
