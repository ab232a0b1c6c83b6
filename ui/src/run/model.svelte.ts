// One run: its snapshot, its log, its net, and where in time the page looks at it. Everything is live: events come by a
// stream, and a gap in their numbers makes the run STALE until it was read again from the watermark.
import { api, Problem, type Schemas } from '../api/client';
import { Stream } from '../api/stream.svelte';
import { failedAt, failureOf, visitOf } from './steps';

export type RunView = Schemas['RunView'];
export type StepView = Schemas['VisitRow'];
export type Reason = Schemas['ReasonRow'];
export type Net = Schemas['Net'];
export type NetStep = Net['steps'][number];

type Keys<U> = U extends unknown ? keyof U : never;
type Field<U, K extends PropertyKey> = U extends unknown ? (K extends keyof U ? U[K] : never) : never;
/** Every field that one of the types has. */
type Some<U> = { [K in Keys<U>]?: Field<U, K> };
type AnyEvent = Schemas['RunEvent'];
type Always = 'runSeq' | 'eventType' | 'emittedAt' | 'hash' | 'prevHash';
/** An event of any type, with the fields that events have. */
export type RunEvent = Pick<AnyEvent, Always> & Omit<Some<AnyEvent>, Always | 'ext'> & { ext: Some<AnyEvent['ext']> };

const PAGE = 1000;

export class RunModel {
  view: RunView | undefined = $state.raw();
  moment: RunView | undefined = $state.raw();
  events: RunEvent[] = $state.raw([]);
  net: Net | undefined = $state.raw();
  problem: Problem | undefined = $state.raw();
  stale = $state(false);
  lastSeq = $state(0);
  /** The event whose moment is shown; absent: now. */
  at: number | undefined = $state();
  actions: Schemas['RunAction'][] = $state.raw([]);
  reading = $state(true);
  private last = 0;
  private stream?: Stream;
  private closed = false;
  private timer?: ReturnType<typeof setTimeout>;
  private begin?: ReturnType<typeof setTimeout>;
  private shownAt = 0;

  shown = $derived(this.at === undefined ? this.view : this.moment);
  until = $derived(this.at ?? Infinity);
  seen = $derived(this.at === undefined ? this.events : this.events.slice(0, this.indexAfter(this.at)));
  ended = $derived(!!this.view && ['COMPLETED', 'FAILED', 'CANCELLED'].includes(this.view.status));
  steps = $derived(new Map((this.shown?.ext.steps ?? []).map((it) => [it.stepId, it])));

  failure = $derived(failureOf(this.seen));
  failedAt = $derived(failedAt(this.seen, this.failure));
  /** What open visits wait for, where it is somebody outside or a time: a worker at work is no wait. */
  waiting = $derived.by(() => {
    const found = new Map<string, Reason>();
    const reasons = this.shown?.ext.waitsFor ?? [];
    const atWork = new Set(reasons.flatMap((it) => (it.stepId && (it.kind === 'lease' || it.kind === 'child') ? [visitOf(it.stepId)] : [])));
    for (const it of reasons) {
      if (!it.stepId || it.kind === 'limit' || atWork.has(visitOf(it.stepId))) continue;
      const visit = visitOf(it.stepId);
      const before = found.get(visit);
      if (!before || (!before.needs && it.needs)) found.set(visit, it);
    }
    return found;
  });

  /** The child runs that steps have waited for, by step. */
  children = $derived.by(() => {
    const found = new Map<string, string>();
    for (const it of this.shown?.ext.children ?? []) found.set(it.stepId, it.runId);
    return found;
  });
  childOf(step: string): string | undefined {
    return this.children.get(step);
  }

  constructor(readonly id: string) {}

  private indexAfter(seq: number): number {
    let low = 0;
    let high = this.events.length;
    while (low < high) {
      const mid = (low + high) >> 1;
      if ((this.events[mid]?.runSeq ?? 0) <= seq) low = mid + 1;
      else high = mid;
    }
    return low;
  }

  /** The event with this number, if it is here. */
  eventAt(seq: number): RunEvent | undefined {
    const found = this.events[this.indexAfter(seq) - 1];
    return found?.runSeq === seq ? found : undefined;
  }

  async start() {
    try {
      const [view, net] = await Promise.all([this.read(), api.get('/api/v1/runs/{run}/net', { path: { run: this.id } })]);
      this.view = view;
      this.net = net;
      this.problem = undefined;
      void this.ask();
    } catch (error) {
      if (error instanceof Problem) this.problem = error;
      if (!this.closed && error instanceof Problem && (error.isOffline || error.status === 503 || this.isExpected(error))) this.begin = setTimeout(() => void this.start(), 1500);
      return;
    }
    try {
      await this.catchUp();
    } catch {
      // The stream goes on from the watermark.
    }
    this.reading = false;
    if (this.closed) return;
    this.open();
  }
  private readonly opened = Date.now();
  /** A run that was asked for a moment ago is there a moment later: an unknown run is looked for again for a while. */
  private isExpected(error: Problem): boolean {
    return error.status === 404 && Date.now() - this.opened < 20_000;
  }
  private open() {
    this.stream?.close();
    this.stream = new Stream(`/api/v1/runs/${encodeURIComponent(this.id)}/stream`, {
      last: () => String(this.last),
      told: (told) => {
        if (told.event === 'end' || told.event === 'problem') void this.refresh();
        else this.heard(JSON.parse(told.data) as RunEvent);
      },
      opened: () => void this.refresh(),
    });
  }
  close() {
    this.closed = true;
    this.stream?.close();
    clearTimeout(this.timer);
    clearTimeout(this.begin);
    clearTimeout(this.again);
  }

  private read(): Promise<RunView> {
    return api.get('/api/v1/runs/{run}', { path: { run: this.id } });
  }

  /** Reads the log from the watermark to its end. */
  private async catchUp() {
    for (;;) {
      const page = await api.get('/api/v1/runs/{run}/events', { path: { run: this.id }, query: { after: this.last, limit: PAGE } });
      if (this.closed) return;
      this.lastSeq = Math.max(page.lastSeq, this.last);
      this.append(page.events as RunEvent[]);
      if (!page.events.length || this.last >= page.lastSeq) return;
    }
  }
  private append(events: RunEvent[]) {
    const fresh = events.filter((it) => it.runSeq > this.last);
    if (!fresh.length) return;
    this.events = this.events.concat(fresh);
    this.last = fresh[fresh.length - 1]!.runSeq;
    this.lastSeq = Math.max(this.lastSeq, this.last);
  }
  private queue: RunEvent[] = [];
  private heard(event: RunEvent) {
    const before = this.queue[this.queue.length - 1]?.runSeq ?? this.last;
    if (event.runSeq <= before) return;
    if (event.runSeq > before + 1) {
      void this.resync(event.runSeq);
      return;
    }
    if (!this.queue.length) setTimeout(() => this.flush(), 60);
    this.queue.push(event);
  }
  private flush() {
    this.append(this.queue.splice(0));
    this.later();
  }
  /** A number is missing. The run is STALE until the log was read from the watermark to beyond the gap. */
  private async resync(observed: number) {
    if (this.stale) return;
    this.stale = true;
    this.flush();
    const before = this.last;
    for (let wait = 400; !this.closed; wait = Math.min(wait * 2, 5000)) {
      try {
        await this.catchUp();
        // The contract: the watermark must have advanced, beyond what was seen.
        if (this.last > before && this.last >= observed) break;
      } catch {
        // Tried again: the server may be away.
      }
      await new Promise((done) => setTimeout(done, wait));
    }
    await this.refresh();
    this.stale = false;
    this.stream?.reopen();
  }

  /** Reads the snapshot soon: many events come at a time, and large runs take longer. */
  private later() {
    if (this.timer) return;
    const pause = Math.max(150, Math.min(2000, this.shownAt * 3));
    this.timer = setTimeout(() => {
      this.timer = undefined;
      void this.refresh();
    }, pause);
  }
  async refresh() {
    const began = performance.now();
    try {
      const view = await this.read();
      if (this.closed) return;
      this.shownAt = performance.now() - began;
      // Answers may overtake each other: an older one shows nothing new.
      if (view.lastEventSeq >= (this.view?.lastEventSeq ?? 0)) this.view = view;
      this.problem = undefined;
      void this.ask();
      if (view.lastEventSeq < this.last) this.later();
    } catch (error) {
      if (error instanceof Problem && !error.isOffline) this.problem = error;
      // What is shown is older than the log: it is read again until it is not.
      if (!this.closed && !(error instanceof Problem && [401, 403, 404].includes(error.status))) this.again ??= setTimeout(() => ((this.again = undefined), void this.refresh()), 1500);
    }
  }
  private again?: ReturnType<typeof setTimeout>;
  private watched = new Map<string, number>();
  /** Asks what may be done to a step, until the answer is called. */
  watchStep(step: string): () => void {
    this.watched.set(step, (this.watched.get(step) ?? 0) + 1);
    void this.ask();
    return () => {
      const left = (this.watched.get(step) ?? 1) - 1;
      if (left) this.watched.set(step, left);
      else this.watched.delete(step);
    };
  }
  private asks = 0;
  /** What this person may do now, to the run and to the steps that are looked at. */
  async ask() {
    const turn = ++this.asks;
    const steps = this.watched.size ? [...this.watched.keys()] : [undefined];
    try {
      const found = await Promise.all(steps.map((step) => api.get('/api/v1/runs/{run}/actions', { path: { run: this.id }, query: { step } })));
      if (!this.closed && turn === this.asks) this.actions = found.flat();
    } catch {
      // Asked again with the next change.
    }
  }
  action(name: string, step?: string): Schemas['RunAction'] | undefined {
    return this.actions.find((it) => it.action === name && (step ? it.stepId === step : !it.stepId));
  }

  private wanted?: number;
  private travelling?: Promise<void>;
  /** Goes to the moment after an event; absent: now. One moment is asked for at a time, then the one that is wanted by then:
   * a slider that is dragged passes many. */
  travel(seq: number | undefined): Promise<void> {
    this.wanted = seq;
    if (seq === undefined) {
      this.moment = undefined;
      this.at = undefined;
      return Promise.resolve();
    }
    this.travelling ??= this.follow().finally(() => (this.travelling = undefined));
    return this.travelling;
  }
  private async follow() {
    while (this.wanted !== undefined && this.wanted !== this.at && !this.closed) {
      const seq = this.wanted;
      try {
        // What is shown stays until the moment is there: nothing is drawn anew, and the focus stays where it is.
        const found = await api.get('/api/v1/runs/{run}/at/{seq}', { path: { run: this.id, seq } });
        if (this.wanted === undefined) return;
        this.moment = found;
        this.at = seq;
      } catch (error) {
        if (this.wanted === seq) throw error;
      }
    }
  }
}
