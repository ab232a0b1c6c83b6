// No state of any language is without a word, a colour and an icon. The words are those of the server.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { besideWord, listedWord, lookOf, lookOrPlain, undoLook, undoWord, subText, waitLook, waitWord, wordWith } from './words';

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

describe('what is said beside a word', () => {
  const reason = (need: string, kind = 'outside') => ({ kind, needs: { need } });
  it('says who is waited for, where the contract has one word for all of it', () => {
    expect(besideWord('RUNNING', 'WAITING_APPROVAL', [reason('event')])).toBe('waits for an event');
    expect(besideWord('Running', 'WAITING_APPROVAL', [reason('completion')])).toBe('waits for a person');
    expect(besideWord('blocked', 'WAITING_APPROVAL', [reason('approval'), reason('event')])).toBe('waits for a person or an event');
    expect(besideWord('WaitingForApproval', 'WAITING_APPROVAL', [reason('approval')])).toBeNull();
    // A list of runs has no reasons.
    expect(besideWord('RUNNING', 'WAITING_APPROVAL')).toBe('waiting');
    expect(besideWord('blocked', 'WAITING_APPROVAL')).toBeNull();
  });
  it('says nothing twice, and tells of a step that is held', () => {
    expect(besideWord('compensating', 'stepwell/COMPENSATING')).toBeNull();
    expect(besideWord('RUNNING', null, [reason('repair', 'operator')])).toBe('held');
    expect(besideWord('PAUSED', 'DRAINING', [reason('repair', 'operator')])).toBe('DRAINING');
    for (const word of ['waits for a person', 'waits for an event', 'waits for a person or an event', 'held', 'waiting']) expect(lookOf(word)).toBeTruthy();
  });
  it('shows a hand where a person is waited for, and a clock where a time or an event is', () => {
    expect(waitLook(reason('approval'))).toEqual({ tone: 'wait', icon: 'hand' });
    expect(waitLook(reason('event'))).toEqual({ tone: 'wait', icon: 'clock' });
    expect(waitLook({ kind: 'timer' })).toEqual({ tone: 'wait', icon: 'clock' });
    expect(waitLook({ kind: 'task' })?.icon).toBe('queue');
    expect(waitWord({ kind: 'task' })).toBe('waits for a worker');
    expect(waitLook({ kind: 'ctx' })).toEqual({ tone: 'wait', icon: 'warning' });
    expect(waitWord({ kind: 'ctx' })).toBe('not admitted yet');
    expect(waitLook(undefined)).toBeUndefined();
  });
  it('has one word for what was undone, whoever says it', () => {
    for (const word of ['stepwell/ROLLED_BACK', 'Compensated']) expect(subText(word)).toBe('undone');
    for (const word of ['stepwell/PARTIAL_ROLLBACK', 'PartiallyCompensated']) expect(subText(word)).toBe('partly undone');
    expect(subText('WAITING_APPROVAL')).toBe('waiting');
    expect(subText('stepwell/STOPPING')).toBe('stopping');
  });
  it('says what holds a run that has no detail of its own', () => {
    expect(besideWord('executing', null, [{ kind: 'task', unserved: true }])).toBe('no worker');
    expect(besideWord('PENDING', null, [reason('approval', 'queue')])).toBe('waits for approval');
    for (const word of ['no worker', 'waits for approval']) expect(lookOf(word)?.tone).toBe('wait');
  });
  it.each(languages.map((it) => [it.name, it] as const))('%s has a word for an item that is done and one that failed', (_, language) => {
    for (const icon of ['check', 'cross'] as const) expect(language.step.map((it) => it.word)).toContain(wordWith(language.step, icon, 'none'));
    expect(wordWith(language.step, 'drain', 'plainly')).toBe('plainly');
  });
  it('has a sentence and a look for each state of an undo', () => {
    for (const word of ['due', 'running', 'done', 'failed', 'not_compensable', 'not_run']) {
      expect(undoWord(word)).toMatch(/undone/);
      expect(undoLook(word)).not.toEqual({ tone: 'idle', icon: 'circle' });
    }
  });
});

it('does not call every wait in a list an approval', () => {
  expect(listedWord('WaitingForApproval')).toBe('Waiting');
  expect(listedWord('Running')).toBe('Running');
});
