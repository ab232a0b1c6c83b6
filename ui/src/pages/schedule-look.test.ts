import { expect, test } from 'vitest';
import { lastRuns } from './schedule-look';

const run = (status: string, endedAt: string | null = '2026-01-01T00:00:00Z') => ({ runId: 'run_1', problem: null, run: { status, endedAt } }) as unknown as Parameters<typeof lastRuns>[0][number];

test('one run that failed among the last ten is said, and an eleventh is not counted', () => {
  expect(lastRuns([run('COMPLETED'), run('FAILED')]).says).toBe('1 of 2 failed');
  expect(lastRuns([...Array.from({ length: 10 }, () => run('COMPLETED')), run('FAILED')]).says).toBe('all 10 succeeded');
});

test('a due time whose run could not be started counts as failed', () => {
  expect(lastRuns([{ runId: undefined, problem: 'DEFINITION_UNKNOWN: …', run: undefined }]).says).toBe('1 of 1 failed');
});

test('open and cancelled runs are no success', () => {
  expect(lastRuns([run('RUNNING', null), run('COMPLETED')]).says).toBe('1 of 2 open');
  expect(lastRuns([run('CANCELLED'), run('COMPLETED')]).says).toBe('1 of 2 cancelled');
  expect(lastRuns([]).says).toBe('');
});
