import { expect, it } from 'vitest';
import { asHeader, isSendable } from './names';

it('takes only names that the server takes', () => {
  for (const name of ['ada', 'Ada Lovelace', 'a', 'x'.repeat(200), '雷'.repeat(200), "O'Neil", 'Zoë Müller', '李雷']) expect(isSendable(name), name).toBe(true);
  for (const name of ['', ' ada', 'ada ', 'x'.repeat(201), 'a\nb', 'a\x00', 'a\u200b', 'a\ud800']) expect(isSendable(name), name).toBe(false);
});
it('sends a name as UTF-8', () => {
  expect(asHeader('Zoë')).toBe('Zo\xc3\xab');
});
