// What would move a run, in words: how each thing that a run waits for comes, and what the next attempt of a step is.
import type { Reason } from './model.svelte';

const BY_NEED: Record<string, string> = {
  approval: 'A person approves or rejects it.',
  completion: 'A person does the work and says how it ended.',
  event: 'An event of this type comes.',
  child_run: 'The child run ends.',
  resume: 'An operator resumes the run.',
};
const BY_KIND: Record<string, string> = {
  task: 'A worker takes it; nothing has to be done.',
  lease: 'The run goes on when the work ends; nothing has to be done.',
  timer: 'It comes by itself; nothing has to be done.',
  queue: 'It starts by itself; where a limit is reached, as soon as another run has ended.',
  start: 'The run starts by itself at that time.',
  ctx: 'A variable changes, so that the token may enter.',
  proceed: 'The engine goes on by itself.',
};
/** A run that is paused does not go on with what comes: somebody must resume it, too. */
const AFTER_RESUME = 'What follows waits until the run is resumed.';

/** How what is waited for comes; empty where it is said otherwise. */
export function moves(it: Reason, isPaused: boolean): string {
  if (it.needs?.need === 'approval' && !it.stepId) return 'A person approves the run; a cancel refuses it.';
  if (it.needs?.need === 'resume') return BY_NEED.resume!;
  if (it.needs?.need === 'repair') return `Somebody with the role engineer retries or skips the step${it.until ? '; otherwise the run stops at that time' : ''}.`;
  if (isPaused && it.kind === 'lease') return `The work goes on to its end. ${AFTER_RESUME}`;
  if (it.needs) return [BY_NEED[it.needs.need], isPaused && AFTER_RESUME].filter(Boolean).join(' ');
  if (it.unserved) return '';
  if (it.retry) return 'It comes by itself; nothing has to be done.';
  return BY_KIND[it.kind] ?? '';
}

/** `attempt 2 of 4`; only `attempt 5` where more were asked for than were planned. */
export function attemptText({ attempt, of }: { attempt: number; of: number }): string {
  return attempt <= of ? `attempt ${attempt} of ${of}` : `attempt ${attempt}`;
}
