// The list of runs: pages from the server, live changes, counts. The filters are in the address.
import { address, api, headers, Problem, send, type Schemas } from '../api/client';
import { Stream } from '../api/stream.svelte';

export type RunRow = Schemas['RunRow'];
export type Held = Schemas['HeldRun'];
export type Filter = Record<string, string>;
export interface LoadedRows {
  rows: RunRow[];
  next: string | null | undefined;
  mark: string | undefined;
}
const PAGE = 200;
/** How often it is asked which runs are held up: a worker that comes or goes changes no run. */
const HELD_MS = 3000;
const MOST_HELD = 500;
/** Pages that a filter leaves empty are passed over, so many at a time. */
const EMPTY_PAGES = 20;

/** Why runs are held up, each reason with its runs. */
export function byReason(held: Iterable<Held>): [string, Held[]][] {
  const found = new Map<string, Held[]>();
  for (const it of held) found.set(it.says, [...(found.get(it.says) ?? []), it]);
  return [...found];
}

export class RunList {
  rows: RunRow[] = $state.raw([]);
  next: string | null | undefined = $state();
  loading = $state(false);
  loaded = $state(false);
  problem: Problem | undefined = $state.raw();
  counts: Record<string, number> = $state.raw({});
  total: number | undefined = $state();
  /** Of one language: how many runs have each of its words. */
  words: Record<string, number> | undefined = $state.raw();
  /** There may be more runs than were counted. */
  partial = $state(false);
  /** The runs that are held up, by id: a step that nobody serves, or no free slot. */
  held: Map<string, Held> = $state.raw(new Map());
  moreHeld = $state(false);
  private mark: string | undefined;
  private stream?: Stream;
  private index = new Map<string, number>();
  private turn = 0;
  private heldTimer?: ReturnType<typeof setInterval>;
  private timers: { counts?: ReturnType<typeof setTimeout>; first?: ReturnType<typeof setTimeout>; retry?: ReturnType<typeof setTimeout> } = {};

  constructor(private filter: Filter) {}

  /** What was loaded, for who comes back to the list. */
  get loadedRows(): LoadedRows {
    return { rows: this.rows, next: this.next, mark: this.mark };
  }
  /** Goes on with rows that were loaded before: the stream tells what has changed since. */
  async start(kept?: LoadedRows) {
    void this.askHeld();
    this.heldTimer = setInterval(() => {
      if (!document.hidden) void this.askHeld();
    }, HELD_MS);
    if (kept?.mark && !this.filter.held) {
      this.take(kept.rows);
      this.next = kept.next;
      this.mark = kept.mark;
      this.loaded = true;
    } else await this.first();
    void this.count();
    this.stream = new Stream('/api/v1/stream', {
      last: () => this.mark,
      told: (told) => {
        if (told.id) this.mark = told.id;
        if (told.event === 'resync') void this.first();
        else if (told.event === 'run') this.heard(JSON.parse(told.data) as RunRow);
      },
    });
  }
  stop() {
    this.turn++;
    this.stream?.close();
    clearInterval(this.heldTimer);
    clearTimeout(this.timers.counts);
    clearTimeout(this.timers.first);
    clearTimeout(this.timers.retry);
  }

  private async page(before?: string): Promise<{ page: Schemas['RunPage']; mark: string | null }> {
    if (this.filter.held) {
      const found = await this.readHeld(this.filter);
      return { page: { runs: found.runs.map((it) => it.run), next: undefined }, mark: null };
    }
    const response = await send('GET', address('/api/v1/runs', {}, { ...this.filter, limit: PAGE, before }));
    return { page: (await response.json()) as Schemas['RunPage'], mark: response.headers.get('stepwell-watermark') };
  }
  private readHeld({ held: _, ...rest }: Filter): Promise<Schemas['HeldRuns']> {
    return api.get('/api/v1/runs/held', { query: { ...rest, limit: MOST_HELD } });
  }
  /** Which runs are held up, whatever their status. */
  private async askHeld() {
    const { status: _, state: __, ...rest } = this.filter;
    try {
      const found = await this.readHeld(rest);
      const held = new Map(found.runs.map((it) => [it.run.runId, it]));
      const isOther = held.size !== this.held.size || [...held.keys()].some((it) => !this.held.has(it));
      this.held = held;
      this.moreHeld = found.more;
      if (this.filter.held && isOther && this.loaded) await this.first();
    } catch {
      // Asked again soon; the stream says that the server is away.
    }
  }
  /** Pages until one has rows. */
  private async pages(before?: string) {
    let found = await this.page(before);
    const mark = found.mark;
    for (let i = 0; i < EMPTY_PAGES && !found.page.runs.length && found.page.next; i++) found = await this.page(found.page.next);
    return { page: found.page, mark };
  }
  async first() {
    const turn = ++this.turn;
    this.loading = true;
    try {
      const { page, mark } = await this.pages();
      if (turn !== this.turn) return;
      this.mark = mark ?? this.mark;
      this.next = page.next;
      this.take(page.runs);
      this.problem = undefined;
      this.loaded = true;
    } catch (error) {
      if (turn !== this.turn) return;
      if (error instanceof Problem) this.problem = error;
      this.timers.retry = setTimeout(() => void this.first(), 2000);
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  async more() {
    if (this.loading || !this.next) return;
    const turn = this.turn;
    this.loading = true;
    try {
      const { page } = await this.pages(this.next);
      if (turn !== this.turn) return;
      this.next = page.next;
      this.take([...this.rows, ...page.runs.filter((it) => !this.index.has(it.runId))]);
    } catch (error) {
      if (error instanceof Problem) this.problem = error;
    } finally {
      if (turn === this.turn) this.loading = false;
    }
  }
  private take(rows: RunRow[]) {
    this.rows = rows;
    this.index = new Map(rows.map((it, i) => [it.runId, i]));
  }
  private told: RunRow[] = [];
  /** Changes are shown together: there may be many at a time. */
  private heard(row: RunRow) {
    if (!this.told.length) setTimeout(() => this.changed(this.told.splice(0)), 100);
    this.told.push(row);
  }
  private changed(changes: RunRow[]) {
    const rows = this.rows.slice();
    let fresh = false;
    for (const change of changes) {
      const at = this.index.get(change.runId);
      if (at === undefined) fresh = true;
      else if ((rows[at]?.events ?? 0) <= change.events) rows[at] = change;
    }
    this.rows = rows;
    if (fresh && !this.timers.first) {
      // New runs, which the server filters: the first page again, before what is there.
      this.timers.first = setTimeout(() => {
        this.timers.first = undefined;
        void this.top();
      }, 400);
    }
    this.timers.counts ??= setTimeout(() => {
      this.timers.counts = undefined;
      void this.count();
    }, 1500);
  }
  private async top() {
    const turn = this.turn;
    try {
      const { page } = await this.page();
      if (turn !== this.turn) return;
      if (this.filter.held) {
        this.take(page.runs);
        return;
      }
      const known = new Set(page.runs.map((it) => it.runId));
      if (page.runs.some((it) => this.index.has(it.runId))) this.take([...page.runs, ...this.rows.filter((it) => !known.has(it.runId))]);
      else {
        this.next = page.next;
        this.take(page.runs);
      }
      // What is new counts at once: no more rows than runs.
      void this.count();
    } catch {
      // The stream says that the server is away, and tells everything again when it is back.
    }
  }
  async count() {
    const turn = this.turn;
    const { status: _, state: __, held: ___, ...rest } = this.filter;
    try {
      const response = await fetch(address('/api/v1/runs/counts', {}, rest), { headers: headers() });
      if (!response.ok) return;
      const found = (await response.json()) as Schemas['RunCounts'];
      if (turn !== this.turn) return;
      this.counts = found.counts;
      this.total = found.total;
      this.words = found.words ?? undefined;
      this.partial = found.partial ?? false;
    } catch {
      // As above.
    }
  }
}
