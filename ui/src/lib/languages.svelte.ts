// The languages with their words for states, as the server has them.
import { api, type Schemas } from '../api/client';

class Languages {
  all: Schemas['LanguageOfDefinitions'][] = $state.raw([]);
  async load() {
    if (!this.all.length) this.all = await api.get('/api/v1/languages');
  }
  /** When a run or a step has the word, in a sentence. */
  when(language: string | undefined, word: string, of: 'run' | 'step' | 'runSubstatus'): string | undefined {
    return this.all.find((it) => it.name === language)?.[of].find((it) => it.word === word)?.when;
  }
}
export const languages = new Languages();
