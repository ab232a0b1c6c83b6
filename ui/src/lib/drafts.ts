// Texts that were written and not registered: kept in this browser until they are registered or thrown away.

const PREFIX = 'stepwell-draft:';

export interface Draft {
  text: string;
  at: string;
}
type Store = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

export class Drafts {
  constructor(private store: Store) {}
  /** The draft of a definition, unless it is what the definition says anyway. */
  get(name: string, known: string): Draft | undefined {
    try {
      const found = JSON.parse(this.store.getItem(PREFIX + name) ?? 'null') as Draft | null;
      return found && typeof found.text === 'string' && found.text !== known ? found : undefined;
    } catch {
      return undefined;
    }
  }
  keep(name: string, text: string, known: string) {
    try {
      if (text === known) this.store.removeItem(PREFIX + name);
      else this.store.setItem(PREFIX + name, JSON.stringify({ text, at: new Date().toISOString() } satisfies Draft));
    } catch {
      // A browser that keeps nothing, or has no room.
    }
  }
  drop(name: string) {
    this.store.removeItem(PREFIX + name);
  }
}
