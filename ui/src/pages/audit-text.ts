// What an entry of the audit log says, in words. The log itself has the method and the path of the request.

const WORDS: Record<string, string> = {
  'POST /api/v1/runs': 'started a run',
  'POST /api/v1/runs/bulk': 'acted on many runs',
  'POST /api/v1/runs/{run}/signals': 'sent a signal',
  'POST /api/v1/runs/{run}/cancel': 'cancelled a run',
  'POST /api/v1/runs/{run}/approve': 'approved a run',
  'POST /api/v1/runs/{run}/steps/{step}/complete': 'answered for a step',
  'POST /api/v1/runs/{run}/events': 'sent an event to a run',
  'POST /api/v1/runs/{run}/ctx': 'set variables of a run',
  'POST /api/v1/runs/{run}/resync': 'made a snapshot again',
  'POST /api/v1/events': 'sent an event',
  'POST /api/v1/definitions': 'registered a definition',
  'PUT /api/v1/definitions': 'registered a definition',
  'POST /api/v1/definitions/{name}/revisions/{revision}/deprecate': 'deprecated a revision, or took it back',
  'PUT /api/v1/schedules/{name}': 'wrote a schedule',
  'DELETE /api/v1/schedules/{name}': 'deleted a schedule',
  'POST /api/v1/schedules/{name}/pause': 'paused a schedule',
  'POST /api/v1/schedules/{name}/resume': 'resumed a schedule',
  'PUT /api/v1/webhooks/{name}': 'wrote a webhook',
  'DELETE /api/v1/webhooks/{name}': 'deleted a webhook',
  'PUT /api/v1/sources/{name}': 'wrote a source',
  'DELETE /api/v1/sources/{name}': 'deleted a source',
  'PUT /api/v1/sinks/{name}': 'wrote a sink',
  'DELETE /api/v1/sinks/{name}': 'removed a sink',
  'POST /api/v1/dead-letters/redrive': 'had dead letters delivered again',
  'POST /api/v1/dead-letters/{no}/redrive': 'had a dead letter delivered again',
  'POST /api/v1/tokens': 'made a token',
  'POST /api/v1/tokens/{id}/rotate': 'rotated a token',
  'DELETE /api/v1/tokens/{id}': 'revoked a token',
  'POST /api/v1/session': 'signed in',
  'DELETE /api/v1/session': 'signed out',
};

const VERBS: Record<string, string> = { started: 'start', acted: 'act', sent: 'send', cancelled: 'cancel', approved: 'approve', answered: 'answer', set: 'set', made: 'make', registered: 'register', deprecated: 'deprecate', took: 'take', wrote: 'write', deleted: 'delete', paused: 'pause', resumed: 'resume', removed: 'remove', had: 'have', rotated: 'rotate', revoked: 'revoke', signed: 'sign', previewed: 'preview' };

/** The words for an action; the action itself if there are none. A dry run has changed nothing, nor has what was refused. */
export function actionText(action: string, target = '', accepted = true): string {
  const text = target.endsWith('/dryRun') ? 'previewed a bulk action' : WORDS[action];
  if (!text || accepted) return text ?? action;
  return `tried to ${text.replace(/^\w+|\btook\b/g, (verb) => VERBS[verb] ?? verb)}`;
}
export const KNOWN_ACTIONS = Object.keys(WORDS);
