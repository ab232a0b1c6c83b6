// Keys for what is done often. A page adds its own; `?` lists all of them.

import { untrack } from 'svelte';

export interface Key {
  key: string;
  says: string;
  do: () => void;
}

class Keys {
  private layers: Key[][] = $state.raw([]);
  help = $state(false);
  /** The keys of the page that is shown, and those of every page. A key of a page hides one of every page. */
  groups = $derived.by(() => {
    const own = this.layers.filter((it) => it !== this.everywhere).flat();
    return { page: own, everywhere: (this.everywhere ?? []).filter((it) => !own.some((other) => other.key === it.key)) };
  });
  private everywhere: Key[] | undefined = $state.raw();
  private before = '';

  constructor() {
    addEventListener('keydown', (event) => this.pressed(event));
  }
  /** Adds keys; the answer takes them away. */
  add(keys: Key[], isEverywhere = false): () => void {
    // Pages add their keys in effects, which must not run again because of other keys.
    untrack(() => {
      this.layers = [...this.layers, keys];
      if (isEverywhere) this.everywhere = keys;
    });
    return () => untrack(() => (this.layers = this.layers.filter((it) => it !== keys)));
  }
  private pressed(event: KeyboardEvent) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.composedPath()[0];
    if (target instanceof HTMLElement && (target.isContentEditable || ['INPUT', 'TEXTAREA', 'SELECT'].includes(target.tagName))) {
      // In an editor the key closes what the editor shows. In a search it would empty the field: the text stays, as does the filter.
      if (event.key === 'Escape' && !target.isContentEditable) {
        if (target instanceof HTMLInputElement && target.type === 'search') event.preventDefault();
        target.blur();
      }
      return;
    }
    if (document.querySelector('dialog[open]')) return;
    // What has the focus does what it does: a key of the page must not take it away.
    if (['Enter', ' '].includes(event.key) && target instanceof Element && target.closest('a, button, summary, [role=tab], [role=menuitem]')) return;
    const pair = this.before ? `${this.before} ${event.key}` : event.key;
    this.before = '';
    const layers = [...this.layers].reverse();
    for (const wanted of [pair, event.key]) {
      for (const layer of layers) {
        const found = layer.find((it) => it.key === wanted);
        if (found) {
          event.preventDefault();
          found.do();
          return;
        }
      }
    }
    if (event.key === '?') this.help = true;
    else if (event.key === 'g') this.before = 'g';
  }
}
export const keys = new Keys();
