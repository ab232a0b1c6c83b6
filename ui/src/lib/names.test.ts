import { expect, it } from 'vitest';
import { isSendable } from './names';

it('takes only names that a header can have', () => {
  for (const name of ['ada', 'Ada Lovelace', 'a', 'x'.repeat(200), "O'Neil"]) expect(isSendable(name), name).toBe(true);
  for (const name of ['', ' ada', 'ada ', 'Zoë Müller', '李雷', 'x'.repeat(201), 'a\nb', 'a\x00']) expect(isSendable(name), name).toBe(false);
});
