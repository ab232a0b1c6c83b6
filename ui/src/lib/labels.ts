// Labels as the filter of runs writes them: `name=value`, separated by commas.

/** One label; a comma or a backslash in it is taken as it is. */
export const labelText = (name: string, value: string) => `${name}=${value}`.replace(/[\\,]/g, '\\$&');

/** A text that is one label as lists show it; none otherwise. */
export function labelIn(text: string): string | undefined {
  const found = /^([\p{L}\p{N}_./-]+)=(.+)$/u.exec(text.trim());
  return found ? labelText(found[1]!, found[2]!) : undefined;
}

/** The labels of a filter, one by one, each as the filter writes it. */
export const labelsIn = (filter: string) => filter.split(/(?<!\\),/).map((it) => it.trim()).filter(Boolean);

/** A label of a filter as people read it. */
export const shownLabel = (label: string) => label.replace(/\\([\\,])/g, '$1');

/** A filter with one more label. A run has one value for a name: another value takes the place of the one before. */
export function withLabel(filter: string, label: string): string {
  const name = (it: string) => it.split('=')[0];
  return [...labelsIn(filter).filter((it) => name(it) !== name(label)), label].join(',');
}

/** The labels of a text `name=value, …`, with commas in values as the filter writes them. Throws if a part is no label, or if
 * a name comes twice: a run would have the last of its values alone. */
export function pairsOf(text: string): [string, string][] {
  const names = new Set<string>();
  return labelsIn(text).map(shownLabel).map((part) => {
    const cut = part.indexOf('=');
    if (cut < 1) throw new Error(`Labels: write ${part} as name=value.`);
    const name = part.slice(0, cut).trim();
    if (names.has(name)) throw new Error(`Labels: ${name} is there twice. A run has one value for each label: keep one of them.`);
    names.add(name);
    return [name, part.slice(cut + 1).trim()];
  });
}
