// How the last runs of a schedule went, in a few words: a schedule whose runs all fail must not look healthy.
import type { Schemas } from '../api/client';

export function lastRuns(runs: Pick<Schemas['ScheduledRun'], 'run' | 'runId' | 'problem'>[]): { says: string; tone: string; icon: string } {
  const known = runs.slice(0, 10).filter((it) => it.run || (!it.runId && it.problem));
  if (!known.length) return { says: '', tone: 'tone-idle', icon: 'circle' };
  const bad = known.filter((it) => !it.run || it.run.status === 'FAILED' || it.run.status === 'DAMAGED').length;
  const open = known.filter((it) => it.run && !it.run.endedAt).length;
  if (bad) return { says: `${bad} of ${known.length} failed`, tone: 'tone-bad', icon: 'cross' };
  if (open) return { says: open === known.length ? `${open} open` : `${open} of ${known.length} open`, tone: 'tone-busy', icon: 'spinner' };
  const gone = known.filter((it) => it.run?.status === 'CANCELLED').length;
  return gone ? { says: `${gone} of ${known.length} cancelled`, tone: 'tone-gone', icon: 'stop' } : { says: known.length === 1 ? 'succeeded' : `all ${known.length} succeeded`, tone: 'tone-good', icon: 'check' };
}
