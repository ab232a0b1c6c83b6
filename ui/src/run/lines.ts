// How the lines of a log are drawn: without what only a terminal understands, and in pieces that fit the width.

/** What programs send to terminals to colour text, move the cursor or set a title. */
// eslint-disable-next-line no-control-regex
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|[@-Z\\-_])/g;

export function withoutEscapes(text: string): string {
  return text.includes('\u001b') ? text.replace(ESCAPES, '') : text;
}

export interface Piece<T> {
  line: T;
  text: string;
  /** Where the piece begins in the text of the line. */
  from: number;
}

/** Lines in pieces of at most so many characters: all pieces have the same height, so a list of them can be virtual. */
export function pieces<T extends { text: string }>(lines: T[], width: number): Piece<T>[] {
  const found: Piece<T>[] = [];
  for (const line of lines) {
    const text = withoutEscapes(line.text);
    if (text.length <= width) {
      found.push({ line, text, from: 0 });
      continue;
    }
    for (let from = 0; from < text.length; ) {
      let until = Math.min(text.length, from + width);
      // A character of two parts is not torn.
      if (until < text.length && /[\ud800-\udbff]/.test(text[until - 1]!)) until--;
      if (until <= from) until = from + 1;
      found.push({ line, text: text.slice(from, until), from });
      from = until;
    }
  }
  return found;
}

/** The text in parts: every second part is what was searched for. */
export function marked(piece: string, needle: string): string[] {
  if (!needle) return [piece];
  const found: string[] = [];
  const low = piece.toLowerCase();
  const wanted = needle.toLowerCase();
  let from = 0;
  for (let at = low.indexOf(wanted); at >= 0; at = low.indexOf(wanted, from)) {
    found.push(piece.slice(from, at), piece.slice(at, at + wanted.length));
    from = at + wanted.length;
  }
  found.push(piece.slice(from));
  return found;
}

/** A size as people read it. */
export const bytes = (n: number): string => (n < 1024 ? `${n} B` : n < 1 << 20 ? `${(n / 1024).toFixed(1)} KiB` : `${(n / (1 << 20)).toFixed(1)} MiB`);
