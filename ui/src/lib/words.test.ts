// No state of any language is without a word, a colour and an icon. The words are those of the server.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { besideWord, lookOf, lookOrPlain, waitingWord, waitLook } from './words';

interface Word {
  word: string;
  when: string;
}
interface Language {
  name: string;
  run: Word[];
  runSubstatus: Word[];
  step: Word[];
}
const languages = JSON.parse(readFileSync('../schemas/languages.json', 'utf8')) as Language[];

describe('words of states', () => {
  it('knows all five languages', () => {
    expect(languages.map((it) => it.name)).toEqual(['actions', 'dag', 'plan', 'playbook', 'linear']);
  });
  for (const language of languages) {
    for (const of of ['run', 'runSubstatus', 'step'] as const) {
      it.each(language[of].map((it) => [it.word, it.when]))(`${language.name} ${of}: %s has a colour, an icon and a meaning`, (word, when) => {
        const look = lookOf(word);
        expect(look?.tone).toBeTruthy();
        expect(look?.icon).toBeTruthy();
        expect(when).toBeTruthy();
      });
    }
    it(`${language.name}: states that ask for different things look different`, () => {
      const ends = language.run.filter((it) => it.when.startsWith('ended'));
      const good = ends.filter((it) => /succeed|success|complete|done|DONE/i.test(it.word)).map((it) => lookOrPlain(it.word).tone);
      const bad = ends.filter((it) => /fail|dead/i.test(it.word)).map((it) => lookOrPlain(it.word).tone);
      for (const tone of bad) expect(good).not.toContain(tone);
    });
  }
  it('draws every icon that a word has', () => {
    const source = readFileSync('src/ui/Icon.svelte', 'utf8');
    for (const language of languages) for (const word of [...language.run, ...language.runSubstatus, ...language.step]) expect(source).toMatch(new RegExp(`\\b${lookOrPlain(word.word).icon}: '`));
  });
  it('shows a word of a newer server plainly instead of not at all', () => {
    expect(lookOf('something-new')).toBeUndefined();
    expect(lookOrPlain('something-new')).toEqual({ tone: 'idle', icon: 'circle' });
  });
});

describe('what waits', () => {
  const event = { kind: 'outside', says: 'pay: waits for event payment.done' };
  const person = { kind: 'outside', says: 'file-paper: waits for a person' };
  const approval = { kind: 'outside', says: 'pay-out: waits for approval before it starts' };
  it('is named after what is waited for', () => {
    expect(waitingWord([event])).toBe('waiting for an event');
    expect(waitingWord([approval])).toBe('waiting for approval');
    expect(waitingWord([person])).toBe('waiting for a person');
    expect(waitingWord([person, event])).toBe('waiting for a person');
    expect(waitingWord([])).toBe('waiting');
  });
  it('has a hand only where a person is waited for', () => {
    expect(waitLook(event)?.icon).toBe('clock');
    expect(waitLook(person)?.icon).toBe('hand');
    expect(waitLook({ kind: 'task', says: 'x', unserved: true })?.tone).toBe('wait');
    expect(waitLook({ kind: 'timer', says: 'x' })).toBeUndefined();
  });
  it('is not said twice', () => {
    expect(besideWord('compensating', 'stepwell/COMPENSATING')).toBeNull();
    expect(besideWord('RUNNING', 'DRAINING')).toBe('DRAINING');
  });
});
