import { describe, expect, it } from 'vitest';
import { Parser, type Told } from './parser';

const all = (...parts: string[]) => {
  const found: Told[] = [];
  const parser = new Parser();
  for (const part of parts) parser.push(part, (it) => found.push(it));
  return found;
};

describe('server-sent events', () => {
  it('are cut at empty lines, wherever the network cuts them', () => {
    expect(all('id: 7\nevent: St', 'epStarted\ndata: {"a"', ':1}\n', '\nid: 8\nevent: end\ndata: {}\n\n')).toEqual([
      { id: '7', event: 'StepStarted', data: '{"a":1}' },
      { id: '8', event: 'end', data: '{}' },
    ]);
  });
  it('are not made from comments, and join lines of data', () => {
    expect(all(': still here\n\n', 'data: one\ndata: two\n\n')).toEqual([{ id: undefined, event: 'message', data: 'one\ntwo' }]);
  });
});
