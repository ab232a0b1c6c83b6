// Which logs there were at a moment: those of executions that had begun.
import type { RunEvent } from './model.svelte';

export interface LogName {
  stepId: string;
  execution: number;
}

/** The logs whose executions had begun with the events; all without events. */
export function logsBegun<L extends LogName>(logs: L[], events?: Pick<RunEvent, 'eventType' | 'stepId' | 'ext'>[]): L[] {
  if (!events) return logs;
  const most = new Map<string, number>();
  for (const event of events) {
    if (!event.stepId || !/^(Step|Undo)(Execution)?Started$/.test(event.eventType)) continue;
    const undo = event.eventType.startsWith('Undo') && !event.stepId.endsWith('~undo') ? '~undo' : '';
    const name = `${event.stepId}${undo}`;
    most.set(name, Math.max(most.get(name) ?? 0, event.ext.execution ?? 1));
  }
  return logs.filter((it) => it.execution <= (most.get(it.stepId) ?? 0));
}
