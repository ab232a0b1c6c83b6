// How often it is asked what wants attention, what was seen already, and how numbers are said.

const SEEN = 'stepwell-alerts-seen';
type Store = Pick<Storage, 'getItem' | 'setItem'>;

/** When it is asked: at once after a silence, otherwise when the pause since the last time is over. */
export class Pacer {
  private last = -Infinity;
  private timer?: ReturnType<typeof setTimeout>;
  constructor(
    private ask: () => void,
    private pause: number,
    private now: () => number = () => Date.now(),
  ) {}
  soon() {
    if (this.timer !== undefined) return;
    const left = Math.max(0, this.last + this.pause - this.now());
    this.timer = setTimeout(() => {
      this.timer = undefined;
      this.last = this.now();
      this.ask();
    }, left);
  }
  stop() {
    clearTimeout(this.timer);
    this.timer = undefined;
  }
}

/** The number of the newest alert that a person has looked at, kept in this browser. */
export class SeenAlerts {
  constructor(private store: Store) {}
  get(who: string): number | undefined {
    const kept = Number(this.store.getItem(`${SEEN}:${who}`) ?? NaN);
    return Number.isSafeInteger(kept) ? kept : undefined;
  }
  put(who: string, no: number) {
    try {
      this.store.setItem(`${SEEN}:${who}`, String(no));
    } catch {
      // A browser that keeps nothing: the alerts count on.
    }
  }
}


export function said(number: { count: number; more: boolean } | null | undefined, one: string, many: string, tone: string) {
  if (!number?.count) return undefined;
  const text = `${number.count}${number.more ? '+' : ''}`;
  return { text, says: `${text} ${number.count === 1 && !number.more ? one : many}`, tone };
}
