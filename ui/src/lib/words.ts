// The look of the words that the languages have for states: a tone (colour) and an icon. The words themselves come from
// the server; a test compares this table with all words of the server, so that no word is without a look.

export type Tone = 'idle' | 'ready' | 'busy' | 'wait' | 'hold' | 'good' | 'part' | 'bad' | 'undo' | 'gone';
export type IconName =
  | 'circle' | 'queue' | 'spinner' | 'clock' | 'pause' | 'check' | 'half' | 'cross' | 'undo' | 'stop' | 'skip' | 'hand'
  | 'drain' | 'warning';

export interface Look {
  tone: Tone;
  icon: IconName;
}

const look = (tone: Tone, icon: IconName): Look => ({ tone, icon });

/** Lower case, without separators and prefixes: the languages write the same words in different ways. */
export function plain(word: string): string {
  return word.replace(/^stepwell\//, '').toLowerCase().replace(/[_\s-]/g, '');
}

const LOOKS: Record<string, Look> = {
  idle: look('idle', 'circle'),
  pending: look('idle', 'circle'),
  queued: look('ready', 'queue'),
  approved: look('ready', 'queue'),
  ready: look('ready', 'queue'),
  running: look('busy', 'spinner'),
  executing: look('busy', 'spinner'),
  finalstep: look('busy', 'spinner'),
  waiting: look('wait', 'clock'),
  blocked: look('wait', 'clock'),
  waitingapproval: look('wait', 'hand'),
  waitingforapproval: look('wait', 'hand'),
  waitingformanualcompletion: look('wait', 'hand'),
  waitsforapproval: look('wait', 'hand'),
  waitsforaperson: look('wait', 'hand'),
  waitsforapersonoranevent: look('wait', 'hand'),
  waitsforanevent: look('wait', 'clock'),
  held: look('hold', 'hand'),
  noworker: look('wait', 'warning'),
  stalled: look('wait', 'warning'),
  paused: look('hold', 'pause'),
  draining: look('hold', 'drain'),
  compensating: look('undo', 'undo'),
  compensated: look('undo', 'undo'),
  rollback: look('undo', 'undo'),
  rolledback: look('undo', 'undo'),
  partiallycompensated: look('bad', 'warning'),
  partialrollback: look('bad', 'warning'),
  stopping: look('gone', 'stop'),
  completed: look('good', 'check'),
  succeeded: look('good', 'check'),
  success: look('good', 'check'),
  done: look('good', 'check'),
  partial: look('part', 'half'),
  failed: look('bad', 'cross'),
  dead: look('bad', 'cross'),
  damaged: look('bad', 'warning'),
  cancelled: look('gone', 'stop'),
  canceled: look('gone', 'stop'),
  skipped: look('gone', 'skip'),
};

/** The look of a word; none if nobody has given it one. */
export function lookOf(word: string): Look | undefined {
  return LOOKS[plain(word)];
}

/** The look of a word, also of one that a newer server may have. */
export function lookOrPlain(word: string | null | undefined): Look {
  return (word && lookOf(word)) || look('idle', 'circle');
}

/** How far the undo of a step is, as the end of a sentence about the step. */
export function undoWord(word: string): string {
  const words: Record<string, string> = { due: 'will be undone', running: 'is being undone', done: 'was undone', failed: 'could not be undone', not_compensable: 'cannot be undone: its definition says so', not_run: 'was not undone: the undoing stopped before it' };
  return words[word] ?? word.replace(/_/g, ' ');
}

/** What the words need to know of a reason why a run waits. */
interface Waits {
  kind: string;
  until?: string | null;
  needs?: { need: string } | null;
  unserved?: boolean;
  retry?: object | null;
}

/** The look of a step that waits for somebody or for a time: the words of some languages say `running` or `pending` then. */
export function waitLook(reason: Waits | undefined): Look | undefined {
  if (!reason) return undefined;
  if (reason.needs?.need === 'approval' || reason.needs?.need === 'completion') return look('wait', 'hand');
  // Held back by its admission rules, until a variable changes.
  if (reason.kind === 'ctx') return look('wait', 'warning');
  // Work that nobody executes: also where the word of the language is still `running`.
  if (reason.kind === 'task' && !reason.until) return look('ready', 'queue');
  if (reason.needs?.need === 'event' || reason.kind === 'timer' || (reason.kind === 'task' && reason.until)) return look('wait', 'clock');
  return undefined;
}

/** What a step that waits is waiting for, in two or three words. */
export function waitWord(reason: Waits | undefined): string | undefined {
  switch (reason?.needs?.need) {
    case 'approval':
      return 'waits for approval';
    case 'completion':
      return 'waits for a person';
    case 'event':
      return 'waits for an event';
    case 'repair':
      return 'held';
  }
  if (reason?.kind === 'task') return reason.until ? 'waits for its next attempt' : 'waits for a worker';
  if (reason?.kind === 'ctx') return 'not admitted yet';
  return reason?.kind === 'timer' ? 'waits for a time' : undefined;
}

/** The word that a language has for a state with this icon; `plainly` where it has none. Items of loops and records of the
 * evidence have no words of their own: theirs are those of steps. */
export function wordWith(words: { word: string }[] | undefined, icon: IconName, plainly: string): string {
  return words?.find((it) => lookOf(it.word)?.icon === icon)?.word ?? plainly;
}

/** What is said beside a state. The contract and the languages have several words for one fact, that steps were undone: pages
 * have one. The contract has one word for what waits for a person and for what waits for an event. */
export function subText(sub: string): string {
  switch (plain(sub)) {
    case 'waitingapproval':
      return 'waiting';
    case 'rolledback':
    case 'compensated':
      return 'undone';
    case 'partialrollback':
    case 'partiallycompensated':
      return 'partly undone';
    case 'compensating':
      return 'undoing';
  }
  return sub.replace(/^stepwell\//, '').replace(/_/g, ' ').toLowerCase();
}

/** The tone of an undo. */
export function undoLook(word: string): Look {
  const looks: Record<string, Look> = {
    due: look('undo', 'queue'),
    running: look('undo', 'spinner'),
    done: look('good', 'undo'),
    failed: look('bad', 'cross'),
    not_compensable: look('gone', 'stop'),
    not_run: look('gone', 'skip'),
  };
  return looks[word] ?? look('idle', 'circle');
}

/** The word for a run in a list. A list has the two words of the contract alone, and they have one for every wait for somebody outside:
 * an approval, manual work, an event. The page of the run says which it is; a list must not say what may be wrong. */
export const listedWord = (word: string) => (plain(word) === 'waitingforapproval' ? 'Waiting' : word);
export const LISTED_WAIT = 'Waits for an approval, manual work or an event: the page of the run says which.';

/** The detail of the state of a run in a list. Some languages have no word for a pause: it is said beside. */
export function listedBeside(run: { word: string; status: string; substatus?: string | null }): string | null {
  if (run.status === 'PAUSED' && plain(run.word) !== 'paused' && (!run.substatus || plain(run.substatus) === 'waitingapproval')) return 'paused';
  return besideWord(run.word, run.substatus);
}

/** The detail of a state, unless the word of the language says it by itself. The contract has one word for every wait for
 * somebody outside, `WAITING_APPROVAL`: with the reasons of the run the page says which it is. */
export function besideWord(word: string, sub: string | null | undefined, reasons?: Waits[]): string | null {
  const needs = new Set((reasons ?? []).map((it) => it.needs?.need));
  if (sub && plain(sub) !== 'waitingapproval') return plain(sub) === plain(word) ? null : sub;
  if (needs.has('repair')) return 'held';
  if ((reasons ?? []).some((it) => it.unserved)) return 'no worker';
  // A run that has not begun: its definition asks for an approval.
  if (!sub && (reasons ?? []).some((it) => it.kind === 'queue' && it.needs?.need === 'approval')) return 'waits for approval';
  if (!sub) return null;
  if (/^waitingfor/.test(plain(word))) return null;
  const person = needs.has('approval') || needs.has('completion');
  if (person || needs.has('event')) return person && needs.has('event') ? 'waits for a person or an event' : person ? 'waits for a person' : 'waits for an event';
  return lookOrPlain(word).tone === 'wait' ? null : 'waiting';
}
