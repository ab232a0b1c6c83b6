// The form of a target: what each delivery of a webhook, or each message of a source, does.
import type { Schemas } from '../api/client';

export class TargetForm {
  does: 'start' | 'event' = $state('start');
  definition = $state('');
  params = $state('{}');
  type = $state('');
  keyFrom = $state('');
  private start: Schemas['StartTarget'] | undefined;

  constructor(was?: Schemas['Target']) {
    if (was && 'event' in was) {
      this.does = 'event';
      this.type = was.event.type;
      this.keyFrom = was.event.keyFrom ?? '';
    } else if (was) {
      this.definition = was.start.definition;
      this.params = JSON.stringify(was.start.params ?? {}, null, 2);
      this.start = was.start;
    }
  }
  /** The target as it is sent. Throws if the parameters are not JSON. */
  get target(): Schemas['Target'] {
    if (this.does === 'event') return { event: { type: this.type, keyFrom: this.keyFrom || null } };
    return { start: { definition: this.definition, revision: this.definition === this.start?.definition ? this.start.revision : undefined, params: JSON.parse(this.params || '{}') as Record<string, never> } };
  }
}
