// Something that is read from the server: loading, there, or refused. It is read again when the page asks, or when the
// server is back.
import { Problem } from '../api/client';

export class Loaded<T> {
  value: T | undefined = $state.raw();
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
      this.problem = undefined;
    } catch (error) {
      if (turn !== this.turn) return;
      this.problem = Problem.of(error);
      if (this.problem.isOffline || this.problem.status === 503) this.timer = setTimeout(() => void this.load(), 1500);
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  /** Reads again every so many milliseconds while the page is seen; the answer ends it. */
  every(ms: number): () => void {
    const timer = setInterval(() => {
      if (!document.hidden) void this.load();
    }, ms);
    return () => {
      clearInterval(timer);
      clearTimeout(this.timer);
    };
  }
}
