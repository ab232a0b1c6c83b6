// Light or dark: what the system says, until the person says otherwise.

export type Choice = 'system' | 'light' | 'dark';
const KEY = 'stepwell-theme';
const dark = matchMedia('(prefers-color-scheme: dark)');

class Theme {
  choice: Choice = $state((localStorage.getItem(KEY) as Choice | null) ?? 'system');
  system = $state(dark.matches);
  isDark = $derived(this.choice === 'system' ? this.system : this.choice === 'dark');
  constructor() {
    dark.addEventListener('change', (it) => {
      this.system = it.matches;
      this.apply();
    });
    this.apply();
  }
  apply() {
    document.documentElement.dataset.theme = this.isDark ? 'dark' : 'light';
  }
  next() {
    const all: Choice[] = ['system', 'light', 'dark'];
    this.choice = all[(all.indexOf(this.choice) + 1) % all.length] ?? 'system';
    localStorage.setItem(KEY, this.choice);
    this.apply();
  }
}
export const theme = new Theme();
