// The name of something that a form creates. What is created is sent with PUT to its name, which would change what has the
// name already: who creates asks before whether the name is free.
import { Problem } from '../api/client';

export class FreshName {
  name = $state('');
  private taken: string | undefined = $state();
  /** Why the name cannot be had; empty if nothing speaks against it. Another name is asked for anew. */
  get wrong(): string {
    return this.taken !== undefined && this.taken === this.name ? `There is a ${this.kind} ${this.name} already. Edit that ${this.kind}, or choose another name.` : '';
  }

  /** `find` reads what has the name: nothing, or a refusal with 404, if the name is free. */
  constructor(private kind: string, private find: (name: string) => Promise<unknown>) {}

  /** Whether the name is free. Every other refusal of the server is thrown. */
  async isFree(): Promise<boolean> {
    const name = this.name;
    try {
      this.taken = (await this.find(name)) ? name : undefined;
    } catch (error) {
      if (!(error instanceof Problem) || error.status !== 404) throw error;
      this.taken = undefined;
    }
    return this.taken === undefined;
  }
}
