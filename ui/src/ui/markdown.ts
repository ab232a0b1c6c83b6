// The few forms of Markdown that pages of the server use, as blocks. No HTML is taken from the text.

export interface Block {
  kind: 'h' | 'p' | 'code' | 'list' | 'table';
  level?: number;
  text?: string;
  items?: string[];
  /** The first row is the head. */
  rows?: string[][];
}

const ITEM = /^\s*(-|\d+\.) /;
const isRow = (line: string) => /^\s*\|.*\|\s*$/.test(line);
/** The cells of a row; a bar that is written as `\|` is no border. */
const cells = (line: string) => line.trim().slice(1, -1).split(/(?<!\\)\|/).map((it) => it.trim().replace(/\\\|/g, '|'));

export function blocksOf(text: string): Block[] {
  const found: Block[] = [];
  const lines = text.split('\n');
  const at = (i: number) => lines[i] ?? '';
  for (let i = 0; i < lines.length; i++) {
    const line = at(i);
    if (line.startsWith('```')) {
      const code: string[] = [];
      for (i++; i < lines.length && !at(i).startsWith('```'); i++) code.push(at(i));
      found.push({ kind: 'code', text: code.join('\n') });
    } else if (/^#{1,4} /.test(line)) {
      const level = line.indexOf(' ');
      if (level > 1) found.push({ kind: 'h', level, text: line.slice(level + 1) });
    } else if (isRow(line)) {
      const rows: string[][] = [];
      for (; i < lines.length && isRow(at(i)); i++) if (!/^[\s|:-]+$/.test(at(i))) rows.push(cells(at(i)));
      i--;
      found.push({ kind: 'table', rows });
    } else if (ITEM.test(line)) {
      const items: string[] = [];
      for (; i < lines.length && at(i).trim(); i++) {
        if (ITEM.test(at(i))) items.push(at(i).replace(ITEM, ''));
        else items[items.length - 1] += ` ${at(i).trim()}`;
      }
      found.push({ kind: 'list', items });
    } else if (line.trim()) {
      const part: string[] = [];
      const ends = (it: string) => !it.trim() || it.startsWith('```') || isRow(it);
      for (; i < lines.length && !ends(at(i)); i++) part.push(at(i));
      if (at(i).trim()) i--;
      found.push({ kind: 'p', text: part.join(' ') });
    }
  }
  return found;
}

/** A line as plain parts, `code`, **strong** and [links](address). */
export const spans = (line: string) => line.split(/(`[^`]+`|\*\*[^*]+\*\*|\[[^\]]+\]\([^)]+\))/);
