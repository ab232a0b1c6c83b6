// Every action that the audit log has words for is an endpoint of the server, and every endpoint that changes something has words.
import { readFileSync } from 'node:fs';
import { expect, it } from 'vitest';
import { actionText, KNOWN_ACTIONS } from './audit-text';

const { paths } = JSON.parse(readFileSync('../schemas/openapi.json', 'utf8')) as { paths: Record<string, Record<string, unknown>> };
const all = Object.entries(paths).flatMap(([path, methods]) => Object.keys(methods).filter((it) => it !== 'get').map((it) => `${it.toUpperCase()} ${path}`));
/** What the audit log does not have: reports of workers, checks of texts, deliveries to webhooks. */
const unrecorded = (it: string) => /\/worker(\/|$)|\/check$|\/hooks\//.test(it);

it('names endpoints that there are', () => {
  expect(KNOWN_ACTIONS.filter((it) => !all.includes(it))).toEqual([]);
});
it('leaves no change without words', () => {
  expect(all.filter((it) => !unrecorded(it) && !KNOWN_ACTIONS.includes(it))).toEqual([]);
});
it('does not call a dry run an act', () => {
  expect(actionText('POST /api/v1/runs/bulk', 'cancel/dryRun')).toBe('previewed a bulk action');
  expect(actionText('POST /api/v1/runs/bulk', 'cancel')).toBe('acted on many runs');
});
it('does not say that something was done that was refused', () => {
  expect(actionText('PUT /api/v1/sinks/{name}', 'x', false)).toBe('tried to write a sink');
  for (const it of KNOWN_ACTIONS) expect(actionText(it, '', false)).not.toMatch(/^tried to \w+(ed|ent|ote|ade) /);
});
