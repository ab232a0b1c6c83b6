// Something that is read from the server: loading, there, or refused. It is read again when the page asks, or when the
// server is back.
import { untrack } from 'svelte';
import { OFFLINE, Problem } from '../api/client';
import { live, Stream } from '../api/stream.svelte';

export class Loaded<T> {
  value: T | undefined = $state.raw();
  /** When the value was read. */
  at: number | undefined = $state();
  problem: Problem | undefined = $state.raw();
  loading = $state(true);
  private turn = 0;
  private timer?: ReturnType<typeof setTimeout>;
  constructor(private read: () => Promise<T>) {}

  async load(): Promise<void> {
    const turn = ++this.turn;
    clearTimeout(this.timer);
    this.loading = true;
    try {
      const value = await this.read();
      if (turn !== this.turn) return;
      this.value = value;
      this.at = Date.now();
      this.problem = undefined;
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem = Problem.of(error);
      // What is read with a POST, such as a preview, is read again as all the rest.
      if (this.problem.isOffline) this.problem = new Problem(0, 'OFFLINE', OFFLINE);
      if (this.problem.isOffline || this.problem.status === 503) this.timer = setTimeout(() => void this.load(), 1500);
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  /** Reads again every so many milliseconds while the page is seen, and says so; the answer ends it. */
  every(ms: number): () => void {
    const again = () => {
      if (!document.hidden) void this.load();
    };
    const timer = setInterval(again, ms);
    document.addEventListener('visibilitychange', again);
    const unpoll = live.poll(this);
    return () => {
      clearInterval(timer);
      clearTimeout(this.timer);
      document.removeEventListener('visibilitychange', again);
      unpoll();
    };
  }
}

/** How soon a change of runs is read. There may be many changes: they are read together, and never wait for silence. */
const SOON = 300;

/**
 * Reads now, and again when a run changes. What runs do not tell is read every so many milliseconds too; without a time, the
 * stream of runs covers everything, and the page is live. The answer ends it.
 */
export function follow(loads: Loaded<unknown>[], ms?: number): () => void {
  const load = () => loads.forEach((it) => void it.load());
  let timer: ReturnType<typeof setTimeout> | undefined;
  load();
  const stream = untrack(() => new Stream(
    '/api/v1/stream',
    {
      last: () => undefined,
      told: (told) => {
        if (told.event !== 'run' && told.event !== 'resync') return;
        timer ??= setTimeout(() => {
          timer = undefined;
          load();
        }, SOON);
      },
      // What has changed while there was no stream.
      opened: load,
    },
    ms === undefined,
  ));
  const ends = ms === undefined ? [] : loads.map((it) => it.every(ms));
  return () => {
    clearTimeout(timer);
    stream.close();
    ends.forEach((end) => end());
  };
}
