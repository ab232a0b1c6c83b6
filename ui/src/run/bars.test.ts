import { describe, expect, it } from 'vitest';
import { axis, barsOf, listed } from './bars';
import { arcsOf, HEIGHT, layout } from './net';
import type { Net, RunEvent } from './model.svelte';

let seq = 0;
const event = (eventType: RunEvent['eventType'], stepId: string | undefined, at: number, ext: Record<string, unknown> = {}): RunEvent => ({ runSeq: ++seq, eventType, stepId, emittedAt: new Date(at).toISOString(), ext, hash: '', prevHash: '' });

describe('timeline', () => {
  it('has a bar for each attempt, backoff, wait and undo', () => {
    const { rows, count } = barsOf([
      event('StepStarted', 'a', 0, { execution: 1 }),
      event('StepExecutionFailed', 'a', 10, { execution: 1, error: { code: 'X' } }),
      event('StepExecutionStarted', 'a', 20, { execution: 2 }),
      event('StepCompleted', 'a', 30),
      event('StepWaiting', 'b', 30, { wait: { for: 'manual' } }),
      event('StepCompleted', 'b', 50),
      event('UndoStarted', 'a', 60, { execution: 1 }),
      event('UndoCompleted', 'a', 70),
    ]);
    expect(rows.map((it) => it.stepId)).toEqual(['a', 'b', 'a~undo']);
    expect(rows[0]!.bars.map((it) => [it.kind, it.tone, it.from, it.until])).toEqual([
      ['attempt', 'bad', 0, 10],
      ['backoff', 'ready', 10, 20],
      ['attempt', 'good', 20, 30],
    ]);
    // A wait that succeeded has a green mark at its end.
    expect(rows[1]!.bars.map((it) => [it.kind, it.tone])).toEqual([['wait', 'wait'], ['end', 'good']]);
    expect(rows[2]!.bars[0]!.tone).toBe('undo');
    expect(count).toBe(5);
  });
  it('writes times with 24 hours, and as fine as the span asks for', () => {
    const at = new Date(2026, 10, 17, 15, 5, 9, 40);
    expect(axis(1000)(at)).toBe('15:05:09.040');
    expect(axis(60_000)(at)).toBe('15:05:09');
    expect(axis(3 * 3_600_000)(at)).toBe('15:05');
    expect(axis(10 * 86_400_000)(at)).toMatch(/17.* 15:05$|Nov.* 15:05$/);
  });
  it('lists the items of a loop below it, closed or open, and finds rows by their names', () => {
    const { rows } = barsOf([
      event('StepStarted', 'each', 0, { loop: { count: 2 } }),
      event('StepStarted', 'each[0]', 1),
      event('StepStarted', 'other', 1),
      event('StepStarted', 'each[1]', 2),
      event('UndoStarted', 'other', 3),
    ]);
    const names = (text: string, open: boolean) => listed(rows, text, () => open).map((it) => it.stepId);
    expect(names('', true)).toEqual(['each', 'each[0]', 'each[1]', 'other', 'other~undo']);
    expect(names('', false)).toEqual(['each', 'other', 'other~undo']);
    expect(names('undo of', false)).toEqual(['other~undo']);
    expect(names('each[1', false)).toEqual(['each', 'each[1]']);
    expect(listed(rows, '', (loop, items, others) => loop === 'each' && items === 2 && others === 2)[0]).toMatchObject({ items: 2, isOpen: true });
  });
  it('leaves a bar open that has no end', () => {
    expect(barsOf([event('StepStarted', 'a', 0)]).rows[0]!.bars[0]!.until).toBeUndefined();
  });
});

describe('graph', () => {
  const step = (name: string, route: 'edges' | 'exclusive' | 'inclusive' = 'edges') => ({ name, join: 'all', route, work: { kind: 'task' } }) as Net['steps'][number];
  const net: Net = { dialect: 'playbook', plan_id: 'p', plan_version: '1', steps: [step('a', 'exclusive'), step('b'), step('c'), step('d')], edges: [{ from: 0, to: 1, when: 'x' }, { from: 0, to: 2, when: 'y' }, { from: 0, to: 3, when: 'z' }], policy: {} } as unknown as Net;
  it('says which arcs were taken, refused, and never looked at', () => {
    const arcs = arcsOf(net, [event('StepCompleted', 'a', 0, { step: { step: 0, visit: 1 }, routing: { taken: [{ edge: 1 }] } })]);
    expect(arcs.map((it) => [it.taken, it.refused, it.passed])).toEqual([[0, 1, 0], [1, 0, 0], [0, 0, 1]]);
  });
  it('takes every arc of a step without guards', () => {
    const plain = { ...net, steps: net.steps.map((it) => ({ ...it, route: 'edges' as const })) };
    const arcs = arcsOf(plain, [event('StepCompleted', 'a', 0, { step: { step: 0, visit: 1 } })]);
    expect(arcs.every((it) => it.taken === 1)).toBe(true);
  });
  it('leaves room for a guard between two steps of a chain', () => {
    const chained: Net = { ...net, steps: [step('a'), step('b'), step('c')], edges: [{ from: 0, to: 1, when: "ctx.customer != '<img src=nobody>' and ctx.amount > 3" }, { from: 1, to: 2 }] } as unknown as Net;
    const { places, height } = layout(chained);
    // Two lines of the guard, one with its result, and air above and below.
    expect(places[1]!.y - places[0]!.y - HEIGHT).toBeGreaterThanOrEqual(3 * 13 + 4 + 16);
    expect(places[2]!.y - places[1]!.y - HEIGHT).toBe(34);
    expect(height).toBe(places[2]!.y + HEIGHT);
  });
  it('places a thousand steps in layers, none upon another, in a moment', () => {
    const count = 1000;
    const large: Net = { ...net, steps: Array.from({ length: count }, (_, i) => step(`s${i}`)), edges: Array.from({ length: count - 10 }, (_, i) => ({ from: i, to: i + 10 })) };
    const began = performance.now();
    const { places } = layout(large);
    expect(performance.now() - began).toBeLessThan(200);
    expect(new Set(places.map((it) => `${it.x}/${it.y}`)).size).toBe(count);
  });
});

it('a pause of the run ends when the run goes on or is stopped', () => {
  const of = (runSeq: number, eventType: string, at: string) => ({ runSeq, eventType, emittedAt: `2026-01-01T00:00:${at}Z`, ext: {} }) as unknown as RunEvent;
  const at = (seconds: number) => Date.parse('2026-01-01T00:00:00Z') + seconds * 1000;
  const events = [of(1, 'RunStarted', '00'), of(2, 'RunPaused', '10'), of(3, 'RunResumed', '20'), of(4, 'RunPaused', '30')];
  expect(barsOf(events).pauses).toEqual([{ from: at(10), until: at(20) }, { from: at(30) }]);
  expect(barsOf([...events, of(5, 'RunStopping', '40')]).pauses[1]).toEqual({ from: at(30), until: at(40) });
});
