// Labels as the filter of runs writes them: `name=value`, separated by commas.

/** One label; a comma or a backslash in it is taken as it is. */
export const labelText = (name: string, value: string) => `${name}=${value}`.replace(/[\\,]/g, '\\$&');

/** A text that is one label as lists show it; none otherwise. */
export function labelIn(text: string): string | undefined {
  const found = /^([\w./-]+)=(.+)$/.exec(text.trim());
  return found ? labelText(found[1]!, found[2]!) : undefined;
}
