// Short messages about what was done or refused.
import { Problem } from '../api/client';

export interface Toast {
  id: number;
  kind: 'good' | 'bad';
  text: string;
  code?: string;
}

class Toasts {
  all: Toast[] = $state([]);
  private last = 0;
  private add(toast: Omit<Toast, 'id'>, ms: number) {
    const id = ++this.last;
    this.all.push({ id, ...toast });
    setTimeout(() => this.drop(id), ms);
  }
  drop(id: number) {
    this.all = this.all.filter((it) => it.id !== id);
  }
  good(text: string) {
    this.add({ kind: 'good', text }, 5000);
  }
  bad(error: unknown) {
    if (error instanceof Problem) this.add({ kind: 'bad', text: error.detail, code: error.code }, 15000);
    else this.add({ kind: 'bad', text: error instanceof Error ? error.message : String(error) }, 15000);
  }
}
export const toasts = new Toasts();
