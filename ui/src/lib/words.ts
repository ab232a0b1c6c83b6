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
  waitingapproval: look('wait', 'clock'),
  waitingforanevent: look('wait', 'clock'),
  waitingforaperson: look('wait', 'hand'),
  waitingforapproval: look('wait', 'hand'),
  waitingformanualcompletion: look('wait', 'hand'),
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

/** The tone of an undo. */
export function undoLook(word: string): Look {
  const looks: Record<string, Look> = {
    due: look('undo', 'undo'),
    running: look('undo', 'spinner'),
    done: look('good', 'undo'),
    failed: look('bad', 'cross'),
    not_compensable: look('gone', 'stop'),
    not_run: look('gone', 'skip'),
  };
  return looks[word] ?? look('idle', 'circle');
}

/** What a step waits for, as far as somebody must give it. */
export interface WaitLook extends Look {
  says: string;
}
/** The look of a step that waits, whatever its word is: some languages call it running, others pending. */
export function waitLook(reason: { kind: string; says: string; unserved?: boolean }): WaitLook | undefined {
  if (reason.kind === 'outside') return /waits for event/.test(reason.says) ? { ...look('wait', 'clock'), says: 'waits for an event' } : { ...look('wait', 'hand'), says: 'waits for a person' };
  if (reason.kind === 'task' && reason.unserved) return { ...look('wait', 'warning'), says: 'no worker' };
  if (reason.kind === 'ctx') return { ...look('wait', 'warning'), says: 'may not enter' };
  return undefined;
}

/** What an open run waits for, if all that is open waits: the word of the contract is the same for people and events. */
export function waitingWord(reasons: { kind: string; says: string }[]): string {
  const outside = reasons.filter((it) => it.kind === 'outside');
  if (outside.length && outside.every((it) => /waits for event/.test(it.says))) return 'waiting for an event';
  if (outside.length && outside.every((it) => /approval/.test(it.says))) return 'waiting for approval';
  return outside.some((it) => !/waits for event/.test(it.says)) ? 'waiting for a person' : 'waiting';
}

/** The detail of a state, unless the word of the language says it by itself. */
export function besideWord(word: string, sub: string | null | undefined): string | null {
  if (!sub || plain(sub) === plain(word)) return null;
  return plain(sub) === 'waitingapproval' && lookOrPlain(word).tone === 'wait' ? null : sub;
}
