// The languages with their words for states, as the server has them.
import { api, type Schemas } from '../api/client';
import { lookOf } from './words';

class Languages {
  all: Schemas['LanguageOfDefinitions'][] = $state.raw([]);
  async load() {
    if (!this.all.length) this.all = await api.get('/api/v1/languages');
  }
  /** The word of a language for a step with this tone: items of loops have no word of their own. */
  like(language: string | undefined, tone: string | undefined): string | undefined {
    return this.all.find((it) => it.name === language)?.step.find((it) => `tone-${lookOf(it.word)?.tone}` === tone)?.word;
  }
  /** When a run or a step has the word, in a sentence. */
  when(language: string | undefined, word: string, of: 'run' | 'step' | 'runSubstatus'): string | undefined {
    return this.all.find((it) => it.name === language)?.[of].find((it) => it.word === word)?.when;
  }
}
export const languages = new Languages();
