import { expect, it } from 'vitest';
import { plainLine } from './lines';

it('takes the colours of terminals away', () => {
  expect(plainLine('\x1b[31mred\x1b[0m \x1b[1;32mgreen\x1b[m')).toBe('red green');
  expect(plainLine('\x1b]0;title\x07text')).toBe('text');
  expect(plainLine('plain [31m text\twith a tab')).toBe('plain [31m text\twith a tab');
});

it('shows that there is something that cannot be shown', () => {
  expect(plainLine('a\x00b')).toBe('a�b');
});
