import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { complete, pathTo } from './completion';

const dag = JSON.parse(readFileSync('../schemas/definitions/dag.schema.json', 'utf8')) as object;
const at = (text: string) => {
  const lines = text.split('\n');
  return complete(dag, text, lines.length, lines[lines.length - 1]!.length);
};

describe('completion', () => {
  it('finds the path of a line from the indentation before it', () => {
    const lines = ['spec:', '  steps:', '    - name: a', '      retryPolicy:', '        max'];
    expect(pathTo(lines, 5, 8)).toEqual(['spec', 'steps', '[]', 'retryPolicy']);
  });
  it('offers the keys of the place', () => {
    const found = at('apiVersion: ioa.dev/v0.2\nkind: Workflow\nspec:\n  steps:\n    - name: a\n      dep');
    expect(found?.options.map((it) => it.label)).toContain('dependsOn');
    expect(found?.word).toBe('dep');
    expect(at('k')?.options.map((it) => it.label)).toContain('kind');
  });
  it('offers the first key of an item of a list', () => {
    const found = at('spec:\n  steps:\n    - na');
    expect(found?.options.map((it) => it.label)).toContain('name');
  });
  it('offers the words of an enum', () => {
    const found = at('spec:\n  failurePolicy: ab');
    expect(found?.options.map((it) => it.label)).toContain('abort');
  });
});
