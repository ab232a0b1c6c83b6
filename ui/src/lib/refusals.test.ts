import { expect, test } from 'vitest';
import { plainRefusal } from './refusals';

test('codes are taken out of the words, and kept', () => {
  expect(plainRefusal('address: WEBHOOK_UNUSABLE: HOST_DENIED: the address 127.0.0.1 is inside this machine')).toEqual({ words: 'address: the address 127.0.0.1 is inside this machine', codes: ['WEBHOOK_UNUSABLE', 'HOST_DENIED'] });
  expect(plainRefusal('the definition uses P1: nothing')).toEqual({ words: 'the definition uses P1: nothing', codes: [] });
});
test('an action has the name that it has on the page', () => {
  expect(plainRefusal('the run has ended; start a new one, or send RETRY_RUN to repeat it').words).toBe('the run has ended; start a new one, or retry it');
});
