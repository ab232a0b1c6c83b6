// Every state of a source has a word of its own, and an error is never shown as a good state.
import { expect, it } from 'vitest';
import { sourceLook } from './source-look';

const counts = { accepted: 0, repeated: 0, rejected: 0 };
const says = (enabled: boolean, isConnected: boolean, error?: string) => sourceLook({ enabled, state: { isConnected, error, ...counts } });

it('says how a source is', () => {
  expect(says(true, true).says).toBe('connected');
  expect(says(true, false).says).toBe('connecting');
  expect(says(true, false, 'refused').says).toBe('not connected');
  expect(says(true, true, 'no slot').says).toBe('waits');
  expect(says(false, false).says).toBe('paused');
  expect(says(false, false, 'refused').says).toBe('paused');
});

it('shows no error as good', () => {
  for (const connected of [true, false]) expect(says(true, connected, 'x').tone).not.toBe('tone-good');
});
