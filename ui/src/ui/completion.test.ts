import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { beginnings, complete, pathTo, stepNames, type Schema } from './completion';

const read = (name: string) => JSON.parse(readFileSync(`../schemas/definitions/${name}.schema.json`, 'utf8')) as Schema;
const tool = read('tool');
/** As the server gives it: with the definitions of tools. */
const schemaOf = (name: string): Schema => ({ ...read(name), $defs: { ...tool.$defs, ...read(name).$defs } });
const dag = schemaOf('dag');
const playbook = schemaOf('playbook');
/** What is offered at `|`, or at the end. */
const at = (text: string, schema = dag) => {
  const place = text.indexOf('|') < 0 ? text.length : text.indexOf('|');
  const lines = text.slice(0, place).split('\n');
  return complete(schema, text.replace('|', ''), lines.length, lines[lines.length - 1]!.length);
};
const labels = (text: string, schema = dag) => at(text, schema)?.options.map((it) => it.label) ?? [];
const STEPS = 'apiVersion: noetl.io/v2\nkind: Playbook\nworkflow:\n  - step: first\n    tool: { kind: noop }\n  - step: second\n';

describe('completion', () => {
  it('finds the path of a line from the indentation before it', () => {
    const lines = ['spec:', '  steps:', '    - name: a', '      retryPolicy:', '        max'];
    expect(pathTo(lines, 5, 8)).toEqual(['spec', 'steps', '[]', 'retryPolicy']);
  });
  it('offers the keys of the place, without those that are there', () => {
    const found = at('apiVersion: ioa.dev/v0.2\nkind: Workflow\nspec:\n  steps:\n    - name: a\n      dep');
    expect(found?.options.map((it) => it.label)).toContain('dependsOn');
    expect(found?.options.map((it) => it.label)).not.toContain('name');
    expect(found?.word).toBe('dep');
    expect(labels('k')).toContain('kind');
    expect(labels('apiVersion: x\n|\nkind: Workflow\n')).toEqual(['metadata', 'spec']);
    // Another item of the list has keys of its own.
    expect(labels('spec:\n  steps:\n    - name: a\n      dependsOn: []\n    - name: b\n      |')).toContain('dependsOn');
  });
  it('offers the first key of an item of a list', () => {
    expect(labels('spec:\n  steps:\n    - na')).toContain('name');
  });
  it('offers the words of an enum', () => {
    expect(labels('spec:\n  failurePolicy: ab')).toContain('abort');
  });
  it('offers the kinds of tools, on one line and below each other', () => {
    for (const text of ['    tool: { kind: ', '    tool:\n      kind: ', '    tool:\n      - kind: ', '    tool:\n      - { name: a, kind: sh']) expect(labels(STEPS + text, playbook), text).toEqual(expect.arrayContaining(['http', 'shell', 'python', 'postgres']));
  });
  it('offers the fields of the tool of this kind', () => {
    for (const text of ['    tool: { kind: shell, ', '    tool:\n      kind: shell\n      ', '    tool:\n      |\n      kind: shell\n']) {
      const found = labels(STEPS + text, playbook);
      expect(found, text).toContain('cmds');
      expect(found, text).not.toContain('kind');
      expect(found, text).not.toContain('url');
    }
    expect(labels(`${STEPS}    tool: { kind: http, `, playbook)).toContain('url');
  });
  it('offers tools in every language', () => {
    expect(labels('spec:\n  steps:\n    - name: a\n      tool: { kind: ')).toContain('shell');
    expect(labels('steps:\n  - stepId: a\n    tool:\n      kind: ', schemaOf('plan'))).toContain('shell');
    expect(labels('actions:\n  - actionId: a\n    tool: { kind: ', schemaOf('actions'))).toContain('shell');
    expect(labels('steps:\n  - stepType: A\n    tool: { kind: ', schemaOf('linear'))).toContain('shell');
  });
  it('offers the names of the other steps', () => {
    expect(stepNames(STEPS)).toEqual(['first', 'second']);
    expect(labels(`${STEPS}    next: { arcs: [{ step: `, playbook)).toContain('first');
    expect(labels(`${STEPS}    next:\n      arcs:\n        - step: fi`, playbook)).toContain('first');
    const steps = 'spec:\n  steps:\n    - name: a\n    - { name: b }\n    - name: c\n      dependsOn: ';
    expect(labels(`${steps}[`)).toEqual(['a', 'b']);
    expect(labels(`${steps}[a, `)).toContain('b');
    expect(labels(`${steps}\n        - `)).toContain('a');
  });
  it('offers all languages where nothing is written', () => {
    const templates = { playbook: 'apiVersion: a\nworkflow: []\n', linear: 'workflowType: A\n' };
    expect(beginnings(templates, '')?.options.map((it) => it.label)).toEqual(['playbook', 'linear', 'apiVersion', 'workflow', 'workflowType']);
    expect(beginnings(templates, '# mine\nworkf')?.word).toBe('workf');
    expect(beginnings(templates, 'apiVersion: a\n')).toBeNull();
  });
});
