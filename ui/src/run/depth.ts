// Where a failure began: a run whose child has failed is followed to the run whose own step has failed.
import { api, Problem, type Schemas } from '../api/client';
import type { RunEvent } from './model.svelte';
import { failedAt, failureOf } from './steps';

/** Runs start runs at most this deep. */
const MOST = 16;
/** The failure that ends a run is near the end of its log. */
const TAIL = 1000;

export interface Root {
  runId: string;
  planId: string;
  /** How many runs below. */
  levels: number;
  /** The step that has failed, or its item; absent if the run has failed without one. */
  step?: string;
  error?: { code: string; message: string } | null;
}

/** The failure below a child run that has failed; none if nothing can be read there. */
export async function rootOf(child: string): Promise<Root | undefined> {
  let found: Root | undefined;
  let next: string | undefined = child;
  for (let levels = 1; next && levels <= MOST; levels++) {
    try {
      const path: { run: string } = { run: next };
      const view: Schemas['RunView'] = await api.get('/api/v1/runs/{run}', { path });
      if (view.status !== 'FAILED' && !found) return undefined;
      const page = await api.get('/api/v1/runs/{run}/events', { path, query: { after: Math.max(0, view.lastEventSeq - TAIL), limit: TAIL } });
      const events = page.events as RunEvent[];
      const failure = failureOf(events);
      const step = failedAt(events, failure);
      found = { runId: next, planId: view.ext.planId, levels, step, error: failure?.ext.error ?? view.error };
      next = step && view.ext.children.findLast((it) => it.stepId === step)?.runId;
    } catch (error) {
      // What is above is what this person may see.
      if (error instanceof Problem && !error.isOffline) return found;
      throw error;
    }
  }
  return found;
}
