// Where a person was in a list, for the way back: an entry of the history of the browser has the key of what is remembered. A
// link to the same list makes a new entry, which begins at the top.

interface HistoryLike {
  readonly state: unknown;
  replaceState(state: unknown, unused: string): void;
}
const MOST = 20;

export class Places<T> {
  private kept = new Map<string, T>();
  private last = 0;
  constructor(private history: HistoryLike) {}
  private key(): string | undefined {
    return (this.history.state as { place?: string } | null)?.place;
  }
  /** What was remembered with this entry of the history. */
  get(): T | undefined {
    const key = this.key();
    return key === undefined ? undefined : this.kept.get(key);
  }
  /** The entry of the history that is shown now: it is marked while it is, because the next one is shown when a page goes. */
  mark(): (value: T) => void {
    let key = this.key();
    if (key === undefined) {
      key = `${Date.now()}-${++this.last}`;
      this.history.replaceState({ ...(this.history.state as object | null), place: key }, '');
    }
    const own = key;
    return (value) => {
      this.kept.delete(own);
      this.kept.set(own, value);
      for (const old of [...this.kept.keys()].slice(0, Math.max(0, this.kept.size - MOST))) this.kept.delete(old);
    };
  }
}
