// Who uses the page, and what this person may do. On an open server people say who they are; else they have a token.
import { api, identity, Problem, type Schemas } from '../api/client';
import { isSendable } from './names';

type Right = 'view' | 'operate' | 'engineer' | 'approve' | 'administer' | 'work';
const ACTOR = 'stepwell-actor';
const ROLE = 'stepwell-role';

class Session {
  info: Schemas['SessionInfo'] | undefined = $state();
  needsToken = $state(false);
  /** There was a session, and it is over: its time has come, or its token was revoked. */
  hasEnded = $state(false);
  problem: Problem | undefined = $state();
  isOpen = $derived(this.info?.access === 'open');
  /** The dialog about who one is. */
  asks = $state(false);
  /** Changes with the person: what a page has read for one person is not for another. */
  who = $derived(`${this.info?.name ?? ''}|${this.info?.roles.join() ?? ''}|${this.info?.tenant ?? ''}`);

  constructor() {
    const kept = localStorage.getItem(ACTOR);
    identity.actor = kept && isSendable(kept) ? kept : undefined;
    identity.role = localStorage.getItem(ROLE) ?? undefined;
    identity.onUnauthorised = () => {
      this.hasEnded ||= !!this.info;
      this.info = undefined;
      this.needsToken = true;
    };
  }
  has(right: Right): boolean {
    return this.info?.rights.includes(right) ?? false;
  }
  async load() {
    try {
      this.take(await api.get('/api/v1/session'));
    } catch (error) {
      if (!(error instanceof Problem)) throw error;
      if (error.status === 401) {
        this.hasEnded ||= !!this.info;
        this.info = undefined;
        this.needsToken = true;
      } else this.problem = error;
    }
  }
  private take(info: Schemas['SessionInfo']) {
    identity.csrf = info.csrf ?? undefined;
    this.info = info;
    this.needsToken = false;
    this.hasEnded = false;
    this.problem = undefined;
  }
  async signIn(token: string) {
    this.take(await api.post('/api/v1/session', { body: { token } }));
  }
  async signOut() {
    await api.delete('/api/v1/session');
    identity.csrf = undefined;
    this.info = undefined;
    this.needsToken = true;
  }
  /** On an open server: acts under another name, and with other roles. */
  async actAs(name: string, roles: string) {
    identity.actor = name || undefined;
    identity.role = roles || undefined;
    if (name) localStorage.setItem(ACTOR, name);
    else localStorage.removeItem(ACTOR);
    if (roles) localStorage.setItem(ROLE, roles);
    else localStorage.removeItem(ROLE);
    await this.load();
  }
}
export const session = new Session();
