// The ids of steps, and what the log says of the items of loops.
import type { IconName } from '../lib/words';
import type { RunEvent } from './model.svelte';

/** The name of a step without visit, item and undo: `load#2[3]~undo` is `load`. */
export function stepName(stepId: string): string {
  return stepId.replace(/~undo$/, '').replace(/\[\d+\]$/, '').replace(/#\d+$/, '');
}
/** The visit that an item belongs to: `load#2[3]` is `load#2`. */
export function visitOf(stepId: string): string {
  return stepId.replace(/~undo$/, '').replace(/\[\d+\]$/, '');
}
/** A step as people call it: `ship~undo` is the undo of `ship`. */
export function stepLabel(stepId: string): string {
  return /~undo$/.test(stepId) ? `undo of ${stepId.replace(/~undo$/, '')}` : stepId;
}

const ITEMS: Partial<Record<RunEvent['eventType'], ItemState>> = { StepCompleted: 'done', StepFailed: 'failed', StepSkipped: 'skipped', StepWaiting: 'waiting', StepStarted: 'running', StepExecutionStarted: 'running', StepWoken: 'running' };
export type ItemState = 'pending' | 'running' | 'waiting' | 'done' | 'failed' | 'cancelled' | 'skipped';
/** What an item of a loop is after an event about it; absent if the event does not say. */
export function itemState(event: RunEvent): ItemState | undefined {
  return event.eventType === 'StepFailed' && event.ext.cancelled ? 'cancelled' : ITEMS[event.eventType];
}
/** The icon of the word that the language of a run has for the state of an item. */
export const ITEM_ICON: Record<ItemState, IconName> = { pending: 'circle', running: 'spinner', waiting: 'clock', done: 'check', failed: 'cross', cancelled: 'stop', skipped: 'skip' };

/** The failure that ended a run, or holds it: that of a whole step rather than that of one of its items. */
export function failureOf(events: RunEvent[]): RunEvent | undefined {
  const failures = events.filter((it) => it.eventType === 'StepFailed' && it.stepId);
  const own = failures.filter((it) => !it.ext.cancelled);
  return own.findLast((it) => !/\[\d+\]$/.test(it.stepId ?? '')) ?? own[own.length - 1] ?? failures[failures.length - 1];
}
/** The step of a failure, and the item of it that failed last, if it is a loop. */
export function failedAt(events: RunEvent[], failure: RunEvent | undefined): string | undefined {
  const step = failure?.stepId ?? undefined;
  return step && (events.findLast((it) => it.eventType === 'StepFailed' && it.stepId?.startsWith(`${step}[`))?.stepId ?? step);
}
/** The items of a visit that have failed and not succeeded since, in their order. */
export function failedItems(events: RunEvent[], visit: string): string[] {
  const states = new Map<string, ItemState>();
  for (const it of events) {
    if (!it.stepId?.startsWith(`${visit}[`)) continue;
    const state = itemState(it);
    if (state) states.set(it.stepId, state);
  }
  const number = (it: string) => Number(/\[(\d+)\]$/.exec(it)?.[1]);
  return [...states].flatMap(([step, state]) => (state === 'failed' ? [step] : [])).sort((a, b) => number(a) - number(b));
}
