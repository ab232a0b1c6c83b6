import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { Pacer, said, SeenAlerts } from './asks';

beforeEach(() => void vi.useFakeTimers());
afterEach(() => void vi.useRealTimers());

test('a thousand changes are one question at once and one for each pause', () => {
  let asked = 0;
  const pacer = new Pacer(() => asked++, 3000);
  pacer.soon();
  vi.advanceTimersByTime(0);
  expect(asked).toBe(1);
  for (let ms = 0; ms < 9000; ms += 9) {
    pacer.soon();
    vi.advanceTimersByTime(9);
  }
  expect(asked).toBe(4);
  // A question that was put off is asked, though nothing changes any more.
  pacer.soon();
  vi.advanceTimersByTime(10_000);
  expect(asked).toBe(5);
  pacer.soon();
  pacer.stop();
  vi.advanceTimersByTime(10_000);
  expect(asked).toBe(5);
});

test('what one person has looked at is new for another', () => {
  const kept = new Map<string, string>();
  const seen = new SeenAlerts({ getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => void kept.set(key, value) });
  expect(seen.get('ada')).toBeUndefined();
  seen.put('ada', 7);
  expect([seen.get('ada'), seen.get('bob')]).toEqual([7, undefined]);
});

test('numbers are said in words, and nothing is said of nothing', () => {
  expect(said({ count: 1, more: false }, 'task', 'tasks', 'tone-wait')?.says).toBe('1 task');
  expect(said({ count: 100, more: true }, 'task', 'tasks', 'tone-wait')).toEqual({ text: '100+', says: '100+ tasks', tone: 'tone-wait' });
  expect(said({ count: 0, more: false }, 'task', 'tasks', 'tone-wait')).toBeUndefined();
  expect(said(undefined, 'task', 'tasks', 'tone-wait')).toBeUndefined();
});
