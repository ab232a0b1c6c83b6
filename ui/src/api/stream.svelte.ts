// Server-sent events. They are read with `fetch`, which can say who reads and where to go on; a stream that breaks is
// opened again by itself, and everybody can see whether the page is live.
import { untrack } from 'svelte';
import { address, headers, identity, Problem } from './client';
import { Parser, type Told } from './parser';

export type { Told };
export type StreamState = 'connecting' | 'live' | 'offline' | 'ended';

const QUIET = 40_000;

/** A stream that stays open until it is closed, or until the server says that it is over. */
export class Stream {
  state: StreamState = $state('connecting');
  private closed = false;
  private abort?: AbortController;
  private wait = 500;
  constructor(
    private path: string,
    private hooks: { last: () => string | undefined; told: (told: Told) => void; opened?: () => void; failed?: (problem: Problem) => void },
    /** The stream tells of everything that the page shows; else it only says when to ask again. */
    readonly covers = true,
  ) {
    live.add(this);
    void this.run();
    addEventListener('online', this.wake);
  }
  private timer?: ReturnType<typeof setTimeout>;
  private wake = () => {
    this.wait = 200;
    this.resume?.();
  };
  private resume?: () => void;
  close() {
    this.closed = true;
    this.abort?.abort();
    this.resume?.();
    clearTimeout(this.timer);
    removeEventListener('online', this.wake);
    live.drop(this);
  }
  /** Breaks the connection and opens it again where the reader is. */
  reopen() {
    this.wait = 50;
    this.abort?.abort();
  }
  private async run() {
    while (!this.closed && this.state !== 'ended') {
      try {
        await this.read();
        if (this.state === 'live') this.state = 'connecting';
      } catch (error) {
        if (this.closed) return;
        if (error instanceof Problem && [400, 401, 403, 404].includes(error.status)) {
          this.state = 'ended';
          if (error.status === 401) identity.onUnauthorised?.();
          this.hooks.failed?.(error);
          return;
        }
        this.state = 'offline';
      }
      if (this.closed || (this.state as StreamState) === 'ended') return;
      const ms = this.wait * (0.75 + Math.random() / 2);
      this.wait = Math.min(this.wait * 1.7, 5000);
      await new Promise<void>((done) => {
        this.resume = done;
        this.timer = setTimeout(done, ms);
      });
    }
  }
  private async read() {
    const abort = new AbortController();
    this.abort = abort;
    const last = this.hooks.last();
    const response = await fetch(address(this.path), {
      headers: { ...headers(), accept: 'text/event-stream', ...(last === undefined ? {} : { 'last-event-id': last }) },
      credentials: 'same-origin',
      cache: 'no-store',
      signal: abort.signal,
    });
    if (!response.ok || !response.body) {
      const body = (await response.json().catch(() => ({}))) as { code?: string; detail?: string };
      throw new Problem(response.status, body.code ?? `HTTP_${response.status}`, body.detail ?? response.statusText);
    }
    this.state = 'live';
    this.wait = 500;
    this.hooks.opened?.();
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser();
    for (;;) {
      // The server says something every 15 seconds: silence is a connection that is gone.
      const quiet = setTimeout(() => abort.abort(), QUIET);
      const { value, done } = await reader.read().finally(() => clearTimeout(quiet));
      if (done) return;
      parser.push(value, (told) => {
        if (told.event === 'end') this.state = 'ended';
        this.hooks.told(told);
        live.changed();
      });
    }
  }
}

/** Something that is asked for again every few seconds, and when it was answered last. */
export interface Polled {
  readonly at: number | undefined;
}

/** Whether everything that the page shows is live. */
class Live {
  streams: Stream[] = $state.raw([]);
  polled: Polled[] = $state.raw([]);
  /** Whether the last request had an answer. Pages without a stream ask again every few seconds. */
  private reached = $state(true);
  /** Of a page that no stream covers: when its oldest part was read. */
  readAt: number | undefined = $derived.by(() => {
    if (!this.polled.length || this.streams.some((it) => it.covers)) return undefined;
    const times = this.polled.map((it) => it.at);
    return times.includes(undefined) ? undefined : Math.min(...(times as number[]));
  });
  state: StreamState = $derived.by(() => {
    if (!this.reached) return 'offline';
    const states = this.streams.map((it) => it.state).filter((it) => it !== 'ended');
    if (states.includes('offline')) return 'offline';
    if (states.includes('connecting')) return 'connecting';
    return 'live';
  });
  constructor() {
    identity.onReach = (isThere) => {
      if (this.reached !== isThere) this.reached = isThere;
    };
  }
  private hearers = new Set<() => void>();
  /** Calls back when a stream of the page has told something; the answer ends it. */
  onChange(hear: () => void): () => void {
    this.hearers.add(hear);
    return () => this.hearers.delete(hear);
  }
  changed() {
    this.hearers.forEach((hear) => hear());
  }
  add(stream: Stream) {
    untrack(() => (this.streams = [...this.streams, stream]));
  }
  drop(stream: Stream) {
    untrack(() => (this.streams = this.streams.filter((it) => it !== stream)));
  }
  /** Counts what is polled; the answer ends it. */
  poll(polled: Polled): () => void {
    untrack(() => (this.polled = [...this.polled, polled]));
    return () => untrack(() => (this.polled = this.polled.filter((it) => it !== polled)));
  }
}
export const live = new Live();
