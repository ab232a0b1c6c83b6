// What asks for a person's attention, wherever the person is: urgent alerts, dead letters, tasks of the inbox, runs that are held up. The numbers are
// asked for every ten seconds while the page is seen, and soon after a run has changed, but never more often than every three.
import { api, type Schemas } from '../api/client';
import { live } from '../api/stream.svelte';
import { Pacer, said, SeenAlerts } from './asks';

const EVERY = 10_000;
const PAUSE = 3000;

class Attention {
  numbers: Schemas['AttentionNumbers'] | undefined = $state.raw();
  private who = '';
  private seen = new SeenAlerts(localStorage);
  private pacer = new Pacer(() => void this.read(), PAUSE);

  /** Asks for one person; the answer ends it. */
  start(who: string): () => void {
    this.who = who;
    this.numbers = undefined;
    this.soon();
    const timer = setInterval(this.soon, EVERY);
    document.addEventListener('visibilitychange', this.soon);
    const unheard = live.onChange(this.soon);
    return () => {
      clearInterval(timer);
      document.removeEventListener('visibilitychange', this.soon);
      unheard();
      this.pacer.stop();
    };
  }
  soon = () => {
    if (!document.hidden) this.pacer.soon();
  };
  /** The person has looked at the alerts up to this one. */
  sawAlerts(no: number) {
    this.seen.put(this.who, no);
    if (this.numbers?.alerts.count) this.soon();
  }
  private async read() {
    const who = this.who;
    try {
      const numbers = await api.get('/api/v1/attention', { query: { alertsAfter: this.seen.get(who) } });
      if (who === this.who) this.numbers = numbers;
    } catch {
      // The page says itself that the server is away; what was counted last stays.
    }
  }
  /** What stands beside the name of a page, and in words; none if nothing asks for attention. */
  of(page: string): { text: string; says: string; tone: string } | undefined {
    const all = this.numbers;
    if (page === 'alerts') return said(all?.alerts, 'urgent alert', 'urgent alerts', 'tone-bad');
    if (page === 'runs') return said(all?.held, 'run is held up', 'runs are held up', 'tone-wait');
    if (page === 'outbox') return said(all?.deadLetters, 'dead letter', 'dead letters', 'tone-bad');
    return page === 'inbox' ? said(all?.inbox, 'task for you', 'tasks for you', 'tone-wait') : undefined;
  }
}

export const attention = new Attention();

/** The title of the window, with the number of urgent alerts: it is seen in other tabs too. */
export function setTitle(title: string) {
  const asks = attention.of('alerts');
  document.title = `${asks ? `(${asks.text}) ` : ''}${title} · Stepwell`;
}
