// Times and durations as people read them. One clock for the whole page makes durations live.

class Clock {
  now = $state(Date.now());
  constructor() {
    setInterval(() => {
      if (!document.hidden) this.now = Date.now();
    }, 1000);
    document.addEventListener('visibilitychange', () => (this.now = Date.now()));
  }
}
export const clock = new Clock();

export function millis(text: string | null | undefined): number | undefined {
  if (!text) return undefined;
  const at = Date.parse(text);
  return Number.isNaN(at) ? undefined : at;
}

/** `120 ms`, `4.2 s`, `3 min 20 s`, `2 h 5 min`, `3 d 4 h`: as the command writes durations. */
export function duration(ms: number): string {
  if (ms < 0) ms = 0;
  if (ms === 0) return '0 s';
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${ms < 10_000 ? (ms / 1000).toFixed(1) : Math.floor(ms / 1000)} s`;
  const two = (big: number, unit: string, small: number, less: string) => (small ? `${big} ${unit} ${small} ${less}` : `${big} ${unit}`);
  const s = Math.floor(ms / 1000);
  if (s < 3600) return two(Math.floor(s / 60), 'min', s % 60, 's');
  const m = Math.floor(s / 60);
  if (m < 1440) return two(Math.floor(m / 60), 'h', m % 60, 'min');
  const h = Math.floor(m / 60);
  return two(Math.floor(h / 24), 'd', h % 24, 'h');
}

/** A duration that goes on: whole seconds, so that it does not jump. */
export function counted(ms: number): string {
  const s = Math.max(0, Math.floor(ms / 1000));
  return s < 10 ? `${s} s` : duration(s * 1000);
}

const sameDay = (a: Date, b: Date) => a.toDateString() === b.toDateString();

/** The local time: without the day if it is today. */
export function local(text: string, now = clock.now): string {
  const at = new Date(text);
  const time = at.toLocaleTimeString(undefined, { hour: '2-digit', minute: '2-digit', second: '2-digit', hour12: false });
  if (sameDay(at, new Date(now))) return time;
  const year = at.getFullYear() === new Date(now).getFullYear() ? undefined : 'numeric';
  return `${at.toLocaleDateString(undefined, { day: 'numeric', month: 'short', year })} ${time}`;
}

/** Relative to now: `12 s ago`, `in 3 min`. */
export function relative(text: string, now = clock.now): string {
  const gap = Date.parse(text) - now;
  if (Math.abs(gap) < 1000) return 'now';
  const coarse = (ms: number) => {
    const s = Math.floor(ms / 1000);
    if (s < 60) return `${s} s`;
    if (s < 3600) return `${Math.floor(s / 60)} min`;
    if (s < 86_400) return `${Math.floor(s / 3600)} h`;
    return `${Math.floor(s / 86_400)} d`;
  };
  return gap < 0 ? `${coarse(-gap)} ago` : `in ${coarse(gap)}`;
}

/** How long ago something was read: `now`, `3 s ago`. */
export function ago(at: number, now = clock.now): string {
  const s = Math.floor((now - at) / 1000);
  return s < 1 ? 'now' : `${duration(s * 1000).replace('.0 ', ' ')} ago`;
}

export function utc(text: string): string {
  return new Date(text).toISOString().replace('T', ' ').replace('Z', ' UTC');
}
