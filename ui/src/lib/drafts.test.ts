import { expect, it } from 'vitest';
import { Drafts } from './drafts';

function drafts() {
  const kept = new Map<string, string>();
  return { kept, drafts: new Drafts({ getItem: (it) => kept.get(it) ?? null, setItem: (it, text) => void kept.set(it, text), removeItem: (it) => void kept.delete(it) }) };
}

it('keeps a text until it is registered or thrown away', () => {
  const { drafts: it } = drafts();
  it.keep('a', 'mine', 'theirs');
  expect(it.get('a', 'theirs')?.text).toBe('mine');
  expect(it.get('b', 'theirs')).toBeUndefined();
  it.drop('a');
  expect(it.get('a', 'theirs')).toBeUndefined();
});

it('keeps nothing that is there anyway, and reads no nonsense', () => {
  const { drafts: it, kept } = drafts();
  it.keep('a', 'same', 'same');
  expect(kept.size).toBe(0);
  it.keep('a', 'mine', 'theirs');
  expect(it.get('a', 'mine')).toBeUndefined();
  kept.set('stepwell-draft:a', '{');
  expect(it.get('a', 'theirs')).toBeUndefined();
});
