// Large runs, long lists and large logs: every interaction takes less than 200 ms, measured in the browser and printed.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BIN, closeBrowser, open, Served } from './support.mjs';

const LIMIT = 200;
const RUNS = Number(process.env.STEPWELL_UI_RUNS ?? 100_000);
/** A faster build of the server may fill the store. */
const FILL = process.env.STEPWELL_FILL_BIN ?? BIN;
let server;
before(async () => {
  server = await new Served(['--parallel', '64']).start();
});
after(async () => {
  await closeBrowser();
  await server.stop();
});

/** Does something five times, and takes the middle of the times until the browser has drawn it. */
async function measured(page, name, act, seen, between) {
  const times = [];
  for (let i = 0; i < 5; i++) {
    times.push(await page.evaluate(`(${TIMED})(${act}, ${seen}, ${i})`));
    if (between) await page.evaluate(`(${TIMED})(${between[0]}, ${between[1]}, ${i})`);
  }
  times.sort((a, b) => a - b);
  console.log(`ui: ${name.padEnd(58)} ${times[2].toFixed(0).padStart(5)} ms (of five: ${times.map((it) => it.toFixed(0)).join(', ')})`);
  assert.ok(times[2] < LIMIT, `${name} took ${times[2]} ms`);
}
/** In the page: the time from the act to the frame in which its result is there. */
const TIMED = async (act, seen, i) => {
  const began = performance.now();
  await act(i);
  for (;;) {
    await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
    if (seen(i)) return performance.now() - began;
    if (performance.now() - began > 10_000) throw new Error('nothing was drawn');
  }
};

test('a graph of 1,000 steps', async () => {
  const steps = Array.from({ length: 1000 }, (_, i) => `    - { name: s${i}, tool: { kind: noop }${i >= 10 ? `, dependsOn: [s${i - 10}]` : ''} }`).join('\n');
  const run = await server.run({ text: `apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: { name: thousand, owner: tests }\nspec:\n  timeout: 1h\n  steps:\n${steps}\n` });
  await server.until(run, (it) => it.status === 'COMPLETED', 240_000);
  const page = await open(server, `#/runs/${run}`);
  await page.locator('[data-step]').first().waitFor({ timeout: 30_000 });
  await page.getByText('chain verified').or(page.locator('[data-step]').first()).first().waitFor();
  await page.waitForTimeout(1500);
  await measured(page, '1,000 steps: zoom in', () => document.querySelector('.svelte-flow__controls-zoomin').click(), () => true);
  await measured(page, '1,000 steps: select a step', (i) => document.querySelectorAll('[data-step]')[i * 3 + 1].click(), () => !!document.querySelector('[data-testid=step]'));
  await measured(page, '1,000 steps: next step with the keyboard', () => dispatchEvent(new KeyboardEvent('keydown', { key: 'j' })), () => !!document.querySelector('[data-testid=step]'));
  const [graph, timeline] = [
    [() => document.querySelector('#tab-graph').click(), () => !!document.querySelector('[data-step]')],
    [() => document.querySelector('#tab-timeline').click(), () => !!document.querySelector('[data-testid=timeline]')],
  ];
  await measured(page, '1,000 steps: from the graph to the timeline', ...timeline, graph);
  await page.locator('#tab-timeline').click();
  await measured(page, '1,000 steps: from the timeline to the graph', ...graph, timeline);
  await page.done();
});

test('a timeline of 10,000 bars', async () => {
  const text = `apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: ten-thousand }\nworkload: { items: [${Array.from({ length: 10_000 }, (_, i) => i).join(',')}] }\nworkflow:\n  - step: work\n    loop: { in: "{{ workload.items }}", iterator: it, spec: { mode: parallel, max_in_flight: 64 } }\n    tool: { kind: noop }\n`;
  const run = await server.run({ text });
  for (const end = Date.now() + 400_000; Date.now() < end; await new Promise((done) => setTimeout(done, 1000))) {
    const page = await server.ask('GET', `/api/v1/runs/${run}/events?after=999999999&limit=1`);
    if (page.endedAt) break;
  }
  const page = await open(server, `#/runs/${run}?tab=timeline`);
  await page.waitForFunction(() => /10,00\d bars/.test(document.body.textContent), null, { timeout: 120_000 });
  await page.waitForTimeout(1000);
  await measured(page, '10,000 bars: zoom in', () => document.querySelector('[aria-label="Zoom in"]').click(), () => true);
  await measured(page, '10,000 bars: move in time', () => document.querySelector('[aria-label="Later"]').click(), () => true);
  await measured(page, '10,000 bars: scroll', (i) => (document.querySelector('[data-testid=timeline] [data-list]').scrollTop = 45_000 * (i + 1)), (i) => [...document.querySelectorAll('[data-testid=timeline] button')].some((it) => it.textContent.includes(`work[${Math.floor((45_000 * (i + 1)) / 26)}]`)));
  await measured(page, '10,000 bars: show all again', () => [...document.querySelectorAll('button')].find((it) => it.textContent === 'All').click(), () => true);
  await page.getByRole('tab', { name: 'Events' }).click();
  await measured(page, '20,000 events: scroll', (i) => (document.querySelector('#tab-panel [data-list]').scrollTop = 110_000 * (i + 1)), (i) => [...document.querySelectorAll('#tab-panel [data-list] button')].some((it) => Number(it.firstElementChild.textContent) > (110_000 * (i + 1)) / 32));
  await measured(page, '20,000 events: filter by type', (i) => { const it = document.querySelector('[aria-label="Type of event"]'); it.value = i % 2 ? '' : 'StepCompleted'; it.dispatchEvent(new Event('change', { bubbles: true })); }, () => true);
  await page.done();
});

test('100,000 runs', async () => {
  const began = Date.now();
  const filled = await new Served([], process.env.STEPWELL_FILLED, { bin: FILL }).start();
  await filled.register('workflowType: waits\nworkflowVersion: 1\nsteps:\n  - { stepType: HOLD, waitFor: { event: never, timeout: 24h } }\n', 'waits.yaml');
  // A store that has the runs already may be given.
  let next = process.env.STEPWELL_FILLED ? RUNS : 0;
  const worker = async () => {
    while (next < RUNS) {
      const i = next++;
      await filled.ask('POST', '/api/v1/runs', { definition: { name: 'waits' }, labels: { lot: String(i % 50) } });
    }
  };
  await Promise.all(Array.from({ length: 24 }, worker));
  console.log(`ui: ${RUNS.toLocaleString()} runs were started in ${Math.round((Date.now() - began) / 1000)} s`);
  await filled.kill();
  filled.bin = BIN;
  await filled.start();
  const page = await open(filled, '#/runs');
  await page.waitForFunction((runs) => Number(/([\d,]+) of ([\d,]+)\+? loaded/.exec(document.body.textContent)?.[2].replace(/,/g, '')) >= runs, RUNS, { timeout: 60_000 });
  await measured(page, `${RUNS.toLocaleString()} runs: next run with the keyboard`, () => dispatchEvent(new KeyboardEvent('keydown', { key: 'j' })), () => !!document.querySelector('.bg-accent-soft[role=row]'));
  await measured(page, `${RUNS.toLocaleString()} runs: scroll within what is loaded`, (i) => (document.querySelector('[role=rowgroup]').scrollTop = 1500 * (i + 1)), () => document.querySelectorAll('[role=rowgroup] [role=row]').length > 5);
  await measured(page, `${RUNS.toLocaleString()} runs: the next page`, (i) => { window.had = Number(/([\d,]+) of/.exec(document.body.textContent)[1].replace(/,/g, '')); const it = document.querySelector('[role=rowgroup]'); it.scrollTop = it.scrollHeight; }, () => Number(/([\d,]+) of [\d,]+\+? loaded/.exec(document.body.textContent)[1].replace(/,/g, '')) > window.had);
  await measured(page, `${RUNS.toLocaleString()} runs: filter by label`, (i) => (location.hash = `#/runs?labels=lot%3D${i + 3}`), (i) => [...document.querySelectorAll('[role=rowgroup] [role=row]')].length > 3 && [...document.querySelectorAll('[role=rowgroup] [role=row]')].every((it) => it.textContent.includes(`lot=${i + 3}`)));
  await measured(page, `${RUNS.toLocaleString()} runs: filter by state`, (i) => (location.hash = i % 2 ? '#/runs' : '#/runs?language=linear&state=RUNNING'), () => document.querySelectorAll('[role=rowgroup] [role=row]').length > 5);
  await page.done();
  await filled.stop();
});

test('50 MB of log', async () => {
  const run = await server.run({ text: 'apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: chatty }\nworkflow:\n  - step: talk\n    tool: { kind: shell, cmds: ["echo one"] }\n' });
  await server.until(run, (it) => it.status === 'COMPLETED');
  // Written as the worker writes it; a program that prints so much is no test of the page.
  const [file] = await server.ask('GET', `/api/v1/runs/${run}/logs`);
  const folder = join(server.folder, 'logs', run, file.stepId);
  mkdirSync(folder, { recursive: true });
  const line = (i) => JSON.stringify({ at: new Date(1.79e12 + i).toISOString(), task: '', stream: i % 97 ? 'out' : 'err', text: `line ${i}: ${'the quick brown fox jumps over the lazy dog '.repeat(2)}` });
  const lines = [];
  for (let i = 0, size = 0; size < 50 << 20; i++) {
    const text = line(i);
    size += text.length + 1;
    lines.push(text);
  }
  lines[Math.floor(lines.length * 0.9)] = JSON.stringify({ at: new Date(1.79e12).toISOString(), task: '', stream: 'err', text: 'the needle in the haystack' });
  writeFileSync(join(folder, '1.jsonl'), `${lines.join('\n')}\n`);
  const page = await open(server, `#/runs/${run}?tab=logs`);
  await page.getByText(`line ${lines.length - 1}:`).waitFor();
  const [start, end] = [
    [() => [...document.querySelectorAll('button')].find((it) => it.textContent === 'Start').click(), () => document.body.textContent.includes('line 1: ')],
    [() => [...document.querySelectorAll('button')].find((it) => it.textContent === 'End').click(), () => !document.body.textContent.includes('line 1: ') && document.querySelectorAll('[data-testid=log] [data-stream]').length > 5],
  ];
  await measured(page, '50 MB of log: go to the start', ...start, end);
  await page.getByRole('button', { name: 'Start', exact: true }).click();
  await page.waitForFunction(() => document.body.textContent.includes('line 1: '));
  await measured(page, '50 MB of log: go to the end', ...end, start);
  await measured(page, '50 MB of log: go to the middle', (i) => { const it = document.querySelector('[aria-label="Place in the log"]'); it.value = String(20_000_000 + i * 1_000_000); it.dispatchEvent(new Event('input', { bubbles: true })); }, (i) => document.querySelectorAll('[data-testid=log] [data-stream]').length > 5);
  await measured(page, '50 MB of log: scroll', (i) => (document.querySelector('[data-testid=log] [data-list]').scrollTop = 3000 * (i + 1)), () => document.querySelectorAll('[data-testid=log] [data-stream]').length > 5);
  const search = (text) => `() => { const it = document.querySelector('[aria-label="Search the log"]'); it.value = '${text}'; it.dispatchEvent(new Event('input', { bubbles: true })); }`;
  const none = [`async () => { (${search('')})(); await new Promise((done) => setTimeout(done, 150)); }`, () => document.querySelectorAll('[data-testid=log] mark').length === 0];
  // A text of many lines, then one that stands in one line near the end.
  await measured(page, '50 MB of log: search a text of many lines', search('lazy dog'), () => document.querySelectorAll('[data-testid=log] mark').length > 5, none);
  await measured(page, '50 MB of log: search the only line with a text', search('needle'), () => document.body.textContent.includes('in the haystack'), none);
  // All of it must be read: the page shows how far the search is, and goes on.
  await measured(page, '50 MB of log: progress of a text that is nowhere', search('no such text'), () => /\d% searched|No line contains this text/.test(document.body.textContent), none);
  const began = Date.now();
  await page.getByLabel('Search the log').fill('no such text either');
  await page.getByText('No line contains this text').waitFor();
  console.log(`ui: 50 MB of log: all of it is searched after ${Date.now() - began} ms`);
  await page.done();
});
