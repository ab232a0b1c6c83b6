import { expect, test } from 'vitest';
import type { Reason } from './model.svelte';
import { attemptText, moves } from './waits';

const reason = (it: Partial<Reason>): Reason => ({ kind: 'task', stepId: 'a', text: '', says: '', what: '', command: null, since: null, until: null, ...it });

test('work in flight moves a run, unless the run is paused', () => {
  const lease = reason({ kind: 'lease' });
  expect(moves(lease, false)).toBe('The run goes on when the work ends; nothing has to be done.');
  expect(moves(lease, true)).toBe('The work goes on to its end. What follows waits until the run is resumed.');
});

test('what a person gives does not move a paused run on its own', () => {
  const child = reason({ kind: 'child', needs: { need: 'child_run', runId: 'run_a' } });
  expect(moves(child, false)).toBe('The child run ends.');
  expect(moves(child, true)).toBe('The child run ends. What follows waits until the run is resumed.');
  expect(moves(reason({ kind: 'operator', stepId: null, needs: { need: 'resume' } }), true)).toBe('An operator resumes the run.');
});

test('a backoff ends by itself', () => {
  const retry = { attempt: 2, of: 4, error: null };
  expect(moves(reason({ retry, until: '2026-01-01T00:00:00Z' }), false)).toBe('It comes by itself; nothing has to be done.');
  expect(attemptText(retry)).toBe('attempt 2 of 4');
  expect(attemptText({ attempt: 5, of: 4 })).toBe('attempt 5');
});
