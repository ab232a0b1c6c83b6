import { expect, test } from 'vitest';
import type { RunEvent } from './model.svelte';
import { failedAt, failedItems, failureOf } from './steps';

const event = (eventType: string, stepId: string, ext: object = {}) => ({ eventType, stepId, ext }) as unknown as RunEvent;
const EVENTS = [
  event('StepFailed', 'each[10]'),
  event('StepFailed', 'each[3]'),
  event('StepFailed', 'each[1]'),
  event('StepCompleted', 'each[1]'),
  event('StepFailed', 'each'),
  event('StepFailed', 'other', { cancelled: true }),
];

test('the failure of a run is that of a step which nobody has cancelled, and its item', () => {
  const failure = failureOf(EVENTS);
  expect(failure?.stepId).toBe('each');
  expect(failedAt(EVENTS, failure)).toBe('each[1]');
  expect(failureOf([])).toBeUndefined();
});

test('items that have failed come in the order of their numbers, without those that succeeded later', () => {
  expect(failedItems(EVENTS, 'each')).toEqual(['each[3]', 'each[10]']);
  expect(failedItems(EVENTS, 'other')).toEqual([]);
});
