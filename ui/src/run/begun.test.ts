import { expect, it } from 'vitest';
import { logsBegun } from './begun';
import type { RunEvent } from './model.svelte';

const event = (eventType: string, stepId: string, execution?: number) => ({ eventType, stepId, ext: { execution } }) as unknown as RunEvent;
const logs = [{ stepId: 'one', execution: 1 }, { stepId: 'one', execution: 2 }, { stepId: 'one~undo', execution: 1 }, { stepId: 'two', execution: 1 }];
const names = (events?: RunEvent[]) => logsBegun(logs, events).map((it) => `${it.stepId}/${it.execution}`);

it('has only logs of executions that had begun at the moment', () => {
  expect(names([])).toEqual([]);
  expect(names([event('StepStarted', 'one', 1)])).toEqual(['one/1']);
  expect(names([event('StepStarted', 'one', 1), event('StepExecutionFailed', 'one', 1), event('StepExecutionStarted', 'one', 2)])).toEqual(['one/1', 'one/2']);
  expect(names([event('StepStarted', 'one', 1), event('UndoStarted', 'one', 1)])).toEqual(['one/1', 'one~undo/1']);
});

it('has all logs now', () => {
  expect(names()).toHaveLength(4);
});
