// A window on the log of one execution. A log may be large: only lines around a place are read, and the page never has
// more than a part of them.
import { api, Problem, type Schemas } from '../api/client';

export type Line = Schemas['PlacedLogRow'];
/** The most lines that are kept. */
const MOST = 6000;
const BYTES = 128 << 10;
/** How many lines of a search are shown at first, and with each "More". */
const HITS = 500;

export class LogWindow {
  lines: Line[] = $state.raw([]);
  size = $state(0);
  first = $state(0);
  next = $state(0);
  loading = $state(false);
  problem: Problem | undefined = $state.raw();
  hits: Line[] = $state.raw([]);
  searchedTo = $state(0);
  searching = $state(false);
  searchProblem: Problem | undefined = $state.raw();
  private turn = 0;
  constructor(
    private run: string,
    private step: string,
    private execution: number,
  ) {}
  private get path() {
    return { run: this.run, step: this.step, execution: this.execution };
  }
  private async read(from?: number, bytes = BYTES) {
    return api.get('/api/v1/runs/{run}/logs/{step}/{execution}', { path: this.path, query: { from, bytes } });
  }
  /** Goes to a place; without one to the end. */
  async go(from?: number) {
    const turn = ++this.turn;
    this.loading = true;
    try {
      const part = await this.read(from);
      if (turn !== this.turn) return;
      this.lines = part.lines;
      this.first = part.first;
      this.next = part.next;
      this.size = part.size;
      this.problem = undefined;
    } catch (error) {
      this.problem = error as Problem;
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  async later() {
    if (this.loading) return;
    const turn = this.turn;
    this.loading = true;
    try {
      const part = await this.read(this.next);
      if (turn !== this.turn) return;
      this.size = part.size;
      if (part.lines.length) {
        const all = [...this.lines, ...part.lines];
        this.lines = all.slice(-MOST);
        this.first = this.lines[0]?.atByte ?? part.first;
        this.next = part.next;
      }
    } catch {
      // Read again with the next look.
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  /** How many lines came before those that were there. */
  async earlier(): Promise<number> {
    if (this.loading || this.first === 0) return 0;
    const turn = this.turn;
    this.loading = true;
    try {
      const from = Math.max(0, this.first - BYTES);
      const part = await this.read(from, Math.max(1, this.first - from));
      if (turn !== this.turn) return 0;
      const before = part.lines.filter((it) => it.atByte < this.first);
      const all = [...before, ...this.lines];
      this.lines = all.slice(0, MOST);
      this.first = before[0]?.atByte ?? from;
      if (all.length > MOST) this.next = all[MOST]!.atByte;
      return before.length;
    } catch {
      return 0;
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  /** All lines from the beginning to the end that the log has now, as text. */
  async whole(): Promise<string[]> {
    const parts: string[] = [];
    for (let from = 0; ; ) {
      const part = await this.read(from, 1 << 20);
      parts.push(part.lines.map((it) => `${it.at} ${it.stream} ${it.text}\n`).join(''));
      if (part.next <= from || part.next >= part.size) return parts;
      from = part.next;
    }
  }
  private searches = 0;
  /** What was found for another text is no longer shown. */
  forget() {
    this.searches++;
    this.hits = [];
    this.searchedTo = 0;
    this.searching = false;
  }
  /** Looks for a text, or for every line of a stream. */
  async search(text: string, stream?: string, more = false) {
    const turn = ++this.searches;
    if (!more) {
      this.hits = [];
      this.searchedTo = 0;
    }
    this.searchProblem = undefined;
    if (!text && !stream) return;
    this.searching = true;
    try {
      const most = this.hits.length + HITS;
      // The server searches a part at a time: what is found is shown while the search goes on.
      do {
        const found = await api.get('/api/v1/runs/{run}/logs/{step}/{execution}/search', { path: this.path, query: { text, stream, from: this.searchedTo, limit: HITS } });
        if (turn !== this.searches) return;
        if (found.lines.length) this.hits = [...this.hits, ...found.lines];
        this.searchedTo = found.next;
        this.size = found.size;
      } while (this.searchedTo < this.size && this.hits.length < most);
    } catch (error) {
      if (turn === this.searches) this.searchProblem = Problem.of(error);
    } finally {
      if (turn === this.searches) this.searching = false;
    }
  }
}
