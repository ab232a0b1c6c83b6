// The bars of the timeline, from the events of a run: attempts, backoffs, waits and undos of every visit and item.
import type { RunEvent } from './model.svelte';
import { stepLabel, visitOf } from './steps';
import type { Tone } from '../lib/words';

export type BarKind = 'attempt' | 'backoff' | 'wait' | 'loop' | 'undo' | 'end';
export interface Bar {
  kind: BarKind;
  tone: Tone;
  from: number;
  /** Absent: it goes on. */
  until?: number;
  says: string;
  seq: number;
}
export interface BarRow {
  stepId: string;
  depth: number;
  bars: Bar[];
}

const time = (text: unknown) => (typeof text === 'string' ? Date.parse(text) : NaN);

/** A time in which the run was paused. */
export interface Pause {
  from: number;
  /** Absent: it goes on. */
  until?: number;
}

export interface Bars {
  rows: BarRow[];
  pauses: Pause[];
  from: number;
  until: number;
  count: number;
}

export function barsOf(events: RunEvent[]): Bars {
  const rows = new Map<string, BarRow>();
  const open = new Map<string, Bar>();
  const pauses: Pause[] = [];
  let from = Infinity;
  let until = -Infinity;
  let count = 0;

  const row = (stepId: string) => {
    let found = rows.get(stepId);
    if (!found) {
      found = { stepId, depth: /\[\d+\]/.test(stepId) ? 1 : 0, bars: [] };
      rows.set(stepId, found);
    }
    return found;
  };
  const begin = (stepId: string, bar: Bar) => {
    end(stepId, bar.from);
    row(stepId).bars.push(bar);
    open.set(stepId, bar);
    count++;
  };
  const end = (stepId: string, at: number, tone?: Tone, says?: string) => {
    const bar = open.get(stepId);
    if (!bar) return;
    bar.until = Math.max(at, bar.from);
    if (tone) bar.tone = tone;
    if (says) bar.says = says;
    open.delete(stepId);
  };

  for (const event of events) {
    const at = time(event.emittedAt);
    if (Number.isNaN(at)) continue;
    if (at < from) from = at;
    if (at > until) until = at;
    const last = pauses[pauses.length - 1];
    if (event.eventType === 'RunPaused') {
      if (!last || last.until !== undefined) pauses.push({ from: at });
      // A run that is stopped is paused no longer.
    } else if (/^Run(Resumed|Stopping|Cancelled|Failed|Completed)$/.test(event.eventType) && last) last.until ??= at;
    const step = event.stepId;
    if (!step) continue;
    const ext = event.ext;
    const undo = `${step}~undo`;
    switch (event.eventType) {
      case 'StepStarted':
      case 'StepExecutionStarted': {
        const what = ext.loop ? `loop over ${ext.loop.count} items` : `attempt ${ext.execution ?? 1}`;
        const who = ext.lease ? `, worker ${ext.lease.worker}` : '';
        begin(step, { kind: ext.loop ? 'loop' : 'attempt', tone: 'busy', from: at, says: what + who, seq: event.runSeq });
        break;
      }
      case 'StepExecutionFailed': {
        end(step, at, 'bad', `attempt ${ext.execution ?? ''} failed: ${ext.error?.code ?? ''}`);
        begin(step, { kind: 'backoff', tone: 'ready', from: at, says: 'waits before the next attempt', seq: event.runSeq });
        break;
      }
      case 'StepWaiting': {
        const what = ext.wait?.for === 'event' ? `event ${ext.wait.event_type}` : (ext.wait?.for ?? 'something');
        begin(step, { kind: 'wait', tone: 'wait', from: at, says: `waits for ${what}`, seq: event.runSeq });
        break;
      }
      case 'StepHeld':
        begin(step, { kind: 'wait', tone: 'hold', from: at, says: 'held for an operator', seq: event.runSeq });
        break;
      case 'StepWoken':
      case 'StepRetried':
        end(step, at);
        break;
      case 'StepCompleted': {
        const waited = open.get(step)?.kind === 'wait';
        end(step, at, waited ? undefined : 'good');
        // A wait stays a wait; a mark at its end says that the step has succeeded.
        if (waited) row(step).bars.push({ kind: 'end', tone: 'good', from: at, until: at, says: 'done', seq: event.runSeq });
        break;
      }
      case 'StepFailed':
        end(step, at, ext.cancelled ? 'gone' : 'bad', `failed: ${ext.error?.code ?? ''}`);
        break;
      case 'StepSkipped':
        end(step, at, 'gone');
        break;
      case 'UndoStarted':
        begin(undo, { kind: 'undo', tone: 'undo', from: at, says: `undo, attempt ${ext.execution ?? 1}`, seq: event.runSeq });
        break;
      case 'UndoExecutionFailed':
        end(undo, at, 'bad', `undo failed: ${ext.error?.code ?? ''}`);
        begin(undo, { kind: 'backoff', tone: 'ready', from: at, says: 'waits before the next attempt of the undo', seq: event.runSeq });
        break;
      case 'UndoCompleted':
        end(undo, at, 'undo', 'undone');
        break;
      case 'UndoFailed':
        end(undo, at, 'bad', `not undone: ${ext.error?.code ?? ''}`);
        break;
    }
  }
  return { rows: [...rows.values()], pauses, from, until, count };
}

/** A row of the list: a loop says how many items it has, and whether they are listed below it. */
export interface ListedRow extends BarRow {
  items: number;
  isOpen: boolean;
}

/** The rows with the items of each loop below it. A text leaves only the rows that have it in their names; the items of a
 * closed loop are found by a text with a bracket. */
export function listed(rows: BarRow[], text: string, opens: (loop: string, items: number, others: number) => boolean): ListedRow[] {
  const below = new Map<string, BarRow[]>();
  const known = new Set(rows.flatMap((it) => (it.depth ? [] : [it.stepId])));
  const tops: BarRow[] = [];
  for (const row of rows) {
    const loop = visitOf(row.stepId);
    if (!row.depth || !known.has(loop)) tops.push(row);
    else if (below.has(loop)) below.get(loop)!.push(row);
    else below.set(loop, [row]);
  }
  const wanted = text.trim().toLowerCase();
  const fits = (row: BarRow) => !wanted || stepLabel(row.stepId).toLowerCase().includes(wanted);
  return tops.flatMap((row) => {
    const items = below.get(row.stepId) ?? [];
    const isOpen = items.length > 0 && opens(row.stepId, items.length, tops.length - 1);
    const found = isOpen || wanted.includes('[') ? items.filter(fits) : [];
    return fits(row) || found.length ? [{ ...row, items: items.length, isOpen }, ...found.map((it) => ({ ...it, items: 0, isOpen: false }))] : [];
  });
}

const DAY = 86_400_000;
/** How the axis of a span writes its times: local, with 24 hours, and as fine as the span asks for. */
export function axis(span: number): (at: Date) => string {
  const two = (n: number, digits = 2) => String(n).padStart(digits, '0');
  return (at) => {
    const clock = `${two(at.getHours())}:${two(at.getMinutes())}`;
    if (span > 2 * DAY) return `${at.toLocaleDateString(undefined, { day: 'numeric', month: 'short' })} ${clock}`;
    if (span > 30 * 60_000) return clock;
    return `${clock}:${two(at.getSeconds())}${span < 4000 ? `.${two(at.getMilliseconds(), 3)}` : ''}`;
  };
}
