import { expect, test } from 'vitest';
import { Places } from './places';

/** Entries as a browser has them: the state of the one that is shown. */
class Entries {
  private all: unknown[] = [null];
  private at = 0;
  get state() {
    return this.all[this.at];
  }
  replaceState(state: unknown) {
    this.all[this.at] = state;
  }
  go() {
    this.all = [...this.all.slice(0, ++this.at), null];
  }
  back() {
    this.at--;
  }
}

test('the way back finds the place; a new way to the same list begins at the top', () => {
  const entries = new Entries();
  const places = new Places<number>(entries);
  expect(places.get()).toBeUndefined();
  const keep = places.mark();
  entries.go();
  keep(850);
  expect(places.get()).toBeUndefined();
  entries.back();
  expect(places.get()).toBe(850);
  entries.go();
  expect(places.get()).toBeUndefined();
});

test('old places are forgotten', () => {
  const entries = new Entries();
  const places = new Places<number>(entries);
  for (let i = 0; i < 30; i++) {
    places.mark()(i);
    entries.go();
  }
  for (let i = 0; i < 30; i++) entries.back();
  expect(places.get()).toBeUndefined();
});
