// Lines of logs as they are drawn.
import { describe, expect, it } from 'vitest';
import { marked, pieces, withoutEscapes } from './lines';

describe('lines of a log', () => {
  it('are drawn without what only a terminal understands', () => {
    expect(withoutEscapes('\u001b[31mred\u001b[0m \u001b[1;38;5;208mbold\u001b[m')).toBe('red bold');
    expect(withoutEscapes('\u001b]0;a title\u0007text\u001b[2K')).toBe('text');
    expect(withoutEscapes('no [31m escape')).toBe('no [31m escape');
  });
  it('are cut into pieces that fit, and nothing is lost or torn', () => {
    const text = `${'x'.repeat(9)}😀${'y'.repeat(25)}`;
    const found = pieces([{ text }, { text: '' }], 10);
    expect(found.map((it) => it.text).join('')).toBe(text);
    expect(found.every((it) => it.text.length <= 10)).toBe(true);
    expect(found[0]!.text).toBe('x'.repeat(9));
    expect(found[1]!.from).toBe(9);
    // An empty line is a line.
    expect(found[found.length - 1]!.text).toBe('');
    expect(pieces([{ text }], Infinity)).toHaveLength(1);
  });
  it('have what was searched for in every second part', () => {
    expect(marked('An error, another ERROR', 'error')).toEqual(['An ', 'error', ', another ', 'ERROR', '']);
    expect(marked('plain', '')).toEqual(['plain']);
  });
});
