// The page of one run, through a real browser and a real server: why a run is where it is, where a failure began, and what a
// person can do about it.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { button, calm, closeBrowser, open, plan, Served, state, waits } from './support.mjs';

let server;
before(async () => {
  server = await new Served().start();
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const cause = (page) => page.getByTestId('cause');
const playbook = (name, steps, more = '') => `apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: ${name} }\n${more}workflow:\n${steps}`;

test('a backoff says what failed, which attempt comes, and when', async () => {
  const text = 'workflowType: flaky\nworkflowVersion: 1\nsteps:\n  - stepType: FETCH\n    maxAttempts: 4\n    backoff: { initial: 60s, max: 60s }\n    tool: { kind: shell, cmds: ["exit 3"] }\n';
  const run = await server.run({ text });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.retry));
  const page = await open(server, `#/runs/${run}`);
  const row = waits(page).locator('li').filter({ hasText: 'FETCH' });
  await row.getByText(/Retries at \d\d:\d\d:\d\d \(\d+ s left\), attempt 2 of 4: SHELL_EXIT .*exit code 3/).waitFor();
  await row.getByText('It comes by itself; nothing has to be done.').waitFor();
  assert.ok(!/worker/i.test(await row.textContent()), await row.textContent());
  const node = page.locator('[data-step=FETCH]');
  await node.getByText(/^retries at \d\d:\d\d:\d\d$/).waitFor();
  assert.equal(await node.locator('[data-retry]').textContent(), '2/4');
  await row.getByRole('link', { name: 'SHELL_EXIT' }).click();
  await page.getByRole('heading', { name: 'SHELL_EXIT', level: 1 }).waitFor();
  calm(page);
  await page.done();
});

test('the work of a paused run goes on to its end, and the run does not', async () => {
  const run = await server.run({ text: plan('paused', '  - stepId: slow\n    tool: { kind: shell, cmds: ["sleep 6"] }\n  - stepId: next\n    dependsOn: [slow]\n    tool: { kind: noop }\n') });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'lease'));
  const page = await open(server, `#/runs/${run}`);
  await page.getByRole('button', { name: 'Pause' }).click();
  await button(page, 'Pause the run').click();
  await waits(page).getByText('The work goes on to its end. What follows waits until the run is resumed.').waitFor();
  assert.ok(!(await waits(page).textContent()).includes('The run goes on when the work ends'));
  // The timeline has the pause.
  await page.getByRole('tab', { name: 'Timeline' }).click();
  await page.getByTestId('pause').waitFor();
  await page.getByRole('button', { name: 'Resume' }).first().click();
  await button(page, 'Resume the run').click();
  await state(page).getByText('COMPLETED').waitFor({ timeout: 20_000 });
  assert.match(await page.getByTestId('pause').getAttribute('title'), /^The run was paused, /);
  calm(page);
  await page.done();
});

test('a failure below child runs is told with the run in which it began, and its log', async () => {
  const child = (name, path) => playbook(name, `  - step: call\n    tool: { kind: playbook, path: ${path} }\n`);
  await server.register(playbook('nest-2', '  - step: dig\n    tool: { kind: shell, cmds: ["echo the shovel broke; exit 7"] }\n'), 'nest-2.yaml');
  await server.register(child('nest-1', 'nest-2'), 'nest-1.yaml');
  await server.register(child('nest-0', 'nest-1'), 'nest-0.yaml');
  const run = await server.run({ name: 'nest-0' });
  await server.until(run, (it) => it.status === 'FAILED');
  const page = await open(server, `#/runs/${run}`);
  await cause(page).getByText(/call failed, because dig of nest-2, 2 runs below, failed: .*exit code 7/).waitFor();
  await cause(page).getByRole('region', { name: 'The end of the log' }).getByText('the shovel broke').waitFor();
  await cause(page).getByRole('link', { name: 'Open the whole log of dig in nest-2' }).click();
  await page.getByRole('heading', { name: 'nest-2', level: 1 }).waitFor();
  await page.getByTestId('log').getByText('the shovel broke').waitFor();
  // The log is there: its end is not repeated above it.
  assert.equal(await cause(page).getByRole('region', { name: 'The end of the log' }).count(), 0);
  await page.getByRole('tab', { name: 'Graph' }).click();
  await cause(page).getByRole('region', { name: 'The end of the log' }).waitFor();
  calm(page);
  await page.done();
});

test('a run that is retried opens when it can be read', async () => {
  const text = plan('fails', '  - stepId: no\n    tool: { kind: shell, cmds: ["exit 1"] }\n');
  const run = await server.run({ text });
  await server.until(run, (it) => it.status === 'FAILED');
  const page = await open(server, `#/runs/${run}`);
  // The new run is there a moment later than the answer says its name.
  let unknown = 3;
  await page.route(/\/api\/v1\/runs\/run_[\w-]+$/, (route) => (!route.request().url().includes(run) && unknown-- > 0 ? route.fulfill({ status: 404, contentType: 'application/problem+json', body: JSON.stringify({ status: 404, code: 'RUN_UNKNOWN', detail: 'there is no such run' }) }) : route.continue()));
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  await button(page, 'Retry the run').click();
  await page.waitForURL((it) => /#\/runs\/run_/.test(it.href) && !it.href.includes(run));
  await page.getByTestId('facts').getByRole('link', { name: run }).waitFor();
  assert.equal(await page.getByText('RUN_UNKNOWN').count(), 0);
  // An address that is opened too early comes by itself.
  unknown = 1;
  await page.reload();
  await state(page).getByText('FAILED').waitFor();
  calm(page);
  await page.done();
});

test('variables are set from their values now, and what is no JSON is told while it is written', async () => {
  const gate = playbook('gated', `  - step: build
    tool: { kind: noop }
    next: { arcs: [{ step: deploy }] }
  - step: deploy
    spec: { policy: { admit: { rules: [{ when: "{{ ctx.approved | default(false) }}", then: { allow: true } }, { else: { then: { allow: false } } }] } } }
    tool: { kind: noop }
`, 'executor: { profile: local }\n');
  const run = await server.run({ text: gate });
  await server.until(run, (it) => it.ext.stuck.length);
  await server.ask('POST', `/api/v1/runs/${run}/ctx`, { ctx: { approved: false, colour: 'red' } });
  const page = await open(server, `#/runs/${run}`);
  await waits(page).getByRole('button', { name: 'Set variables' }).click();
  const field = page.getByLabel('Variables, as JSON');
  assert.deepEqual(JSON.parse(await field.inputValue()), { approved: false });
  await page.getByTestId('ctx-now').getByText('"red"').waitFor();
  await field.fill('{"approved": tru}');
  await page.getByRole('dialog').getByText('The text is not JSON').waitFor();
  assert.ok(await button(page, 'Set variables').isDisabled());
  await field.fill('{"approved": true}');
  await button(page, 'Set variables').click();
  await state(page).getByText('success').waitFor();
  calm(page);
  await page.done();
});

test('a run whose text is not registered has its compiled definition, as what it is', async () => {
  const run = await server.run({ text: plan('once', '  - stepId: only\n    tool: { kind: noop }\n') });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}`);
  await page.getByTestId('facts').getByRole('button', { name: 'compiled definition' }).click();
  const dialog = page.getByTestId('compiled');
  await dialog.getByText('The run was started from a text that is not registered').waitFor();
  const shown = JSON.parse(await dialog.getByRole('region', { name: 'compiled definition' }).textContent());
  assert.equal(shown.steps[0].name, 'only');
  const [file] = await Promise.all([page.waitForEvent('download'), button(page, 'Download').click()]);
  assert.match(file.suggestedFilename(), /^once-[0-9a-f]{8}\.net\.json$/);
  calm(page);
  await page.done();
});

test('the log of a loop opens on the first item that failed', async () => {
  const run = await server.run({ text: playbook('some-fail', `  - step: each
    loop: { in: "{{ workload.items }}", iterator: it, spec: { mode: sequential, policy: { failure: { mode: continue } } } }
    tool: { kind: shell, cmds: ["echo item {{ iter.it }}; test {{ iter.it }} -ne 3 -a {{ iter.it }} -ne 10"] }
`, `workload: { items: [${Array.from({ length: 12 }, (_, i) => i).join()}] }\n`) });
  await server.until(run, (it) => ['COMPLETED', 'FAILED'].includes(it.status));
  const page = await open(server, `#/runs/${run}?tab=logs&step=each`);
  await page.getByTestId('log').getByText('item 3', { exact: true }).waitFor();
  assert.equal(await page.getByLabel('Step', { exact: true }).inputValue(), 'each[3]');
  calm(page);
  await page.done();
});

test('deep JSON keeps its structure; outputs stay open side by side, and each is shown once', async () => {
  const deep = JSON.stringify(Array.from({ length: 40 }).reduce((it, _, i) => ({ [`level${40 - i}`]: it }), { end: 'a long text with many words that does not fit into one line of a narrow panel at all' }));
  const step = (name, value) => `  - step: ${name}\n    tool:\n      kind: python\n      code: |\n        import json\n        result = json.loads('${value}')\n`;
  const run = await server.run({ text: playbook('deep', `${step('one', deep)}    next: { arcs: [{ step: two }] }\n${step('two', '{"n": 2}')}`) });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}?step=one`);
  const output = page.getByTestId('step').getByRole('region', { name: 'output of one' });
  await output.waitFor();
  // Every line begins where its indentation says, also the deepest: the box scrolls sideways.
  const lefts = await output.evaluate((box) => [...box.querySelectorAll('span.line')].slice(0, 41).map((line) => line.children[1].getClientRects()[0].left));
  assert.ok(lefts.every((it, i) => i === 0 || it > lefts[i - 1] + 5), lefts.join());
  assert.ok(await output.evaluate((box) => box.scrollWidth > box.clientWidth));
  await page.getByRole('tab', { name: 'State' }).click();
  assert.equal(await page.getByRole('region', { name: 'output of one' }).count(), 1);
  await page.locator('summary').filter({ hasText: 'two' }).locator('svg').first().click();
  await page.getByRole('region', { name: 'output of two' }).waitFor();
  assert.equal(await page.getByRole('region', { name: 'output of one' }).isVisible(), true);
  calm(page);
  await page.done();
});

test('a large graph opens with names that can be read, at its first step or at what has failed', async () => {
  const steps = (bad) => Array.from({ length: 200 }, (_, i) => `    - { name: s${i}, tool: { kind: ${i === bad ? 'shell, cmds: ["exit 1"]' : 'noop'} }${i >= 10 ? `, dependsOn: [s${i - 10}]` : ''} }`).join('\n');
  const text = (name, bad) => `apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: { name: ${name}, owner: tests }\nspec:\n  timeout: 1h\n  steps:\n${steps(bad)}\n`;
  for (const [name, bad, seen] of [['wide', -1, 's0'], ['wide-bad', 115, 's115']]) {
    const run = await server.run({ text: text(name, bad) });
    await server.until(run, (it) => ['COMPLETED', 'FAILED'].includes(it.status), 60_000);
    const page = await open(server, `#/runs/${run}`);
    const node = page.locator(`[data-step=${seen}]`);
    await node.getByText(seen, { exact: true }).waitFor();
    const [box, graph] = [await node.boundingBox(), await page.getByTestId('graph').boundingBox()];
    assert.ok(box.x >= graph.x && box.x + box.width <= graph.x + graph.width && box.y >= graph.y && box.y + box.height <= graph.y + graph.height, JSON.stringify([box, graph]));
    // Nothing is left empty beside the first step.
    if (bad < 0) assert.ok(box.x - graph.x < 80, JSON.stringify([box, graph]));
    calm(page);
    await page.done();
  }
});

test('what was not undone is told beside what was, in plain words', async () => {
  const run = await server.run({ text: plan('partly', `  - stepId: build
    tool: { kind: noop }
  - stepId: reserve
    dependsOn: [build]
    tool: { kind: noop }
    compensation: { tool: { kind: noop } }
  - stepId: mail
    dependsOn: [reserve]
    sideEffect: irreversible
    tool: { kind: noop }
  - stepId: hold
    dependsOn: [mail]
    waitFor: { event: never }
`) });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  await server.ask('POST', `/api/v1/runs/${run}/cancel`, { compensate: true });
  await server.until(run, (it) => it.status === 'CANCELLED');
  const page = await open(server, `#/runs/${run}?tab=compensation`);
  const rows = page.locator('#tab-panel ol li');
  await rows.filter({ hasText: 'reserve' }).getByText('undone', { exact: true }).waitFor();
  await rows.filter({ hasText: 'mail' }).getByText('cannot be undone').waitFor();
  await rows.filter({ hasText: 'mail' }).getByText('its definition says so').waitFor();
  await page.getByTestId('stays').getByRole('button', { name: 'build' }).waitFor();
  assert.ok(!/compensable/.test(await page.locator('#tab-panel').textContent()));
  calm(page);
  await page.done();
});

test('who may not retry a held step is told which role may', async () => {
  const run = await server.run({ text: plan('holds', '  - stepId: no\n    tool: { kind: shell, cmds: ["exit 1"] }\n', '  onStepFailure: hold\n  holdTimeout: 1h\n') });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.needs?.need === 'repair'));
  for (const role of ['viewer', 'operator']) {
    const page = await open(server, `#/runs/${run}`, { actor: 'ada', role });
    await page.getByTestId('forbidden').getByText('You cannot retry or skip it: The role engineer is needed.').waitFor();
    assert.equal(await waits(page).getByRole('button', { name: /^(Retry|Skip)$/ }).count(), 0);
    calm(page);
    await page.done();
  }
  const page = await open(server, `#/runs/${run}`);
  await waits(page).getByText('Somebody with the role engineer retries or skips the step; otherwise the run stops at that time.').waitFor();
  await waits(page).getByRole('button', { name: 'Skip', exact: true }).waitFor();
  calm(page);
  await page.done();
});

test('a moment is read under a slider that stays where it is, with durations until then', async () => {
  const run = await server.run({ text: plan('moments', '  - stepId: slow\n    tool: { kind: shell, cmds: ["sleep 1"] }\n  - stepId: next\n    dependsOn: [slow]\n    tool: { kind: shell, cmds: ["exit 1"] }\n') });
  await server.until(run, (it) => it.status === 'FAILED');
  const { events } = await server.ask('GET', `/api/v1/runs/${run}/events`);
  const started = events.find((it) => it.stepId === 'slow' && it.eventType === 'StepStarted').runSeq;
  const page = await open(server, `#/runs/${run}?step=slow`);
  await cause(page).waitFor();
  const slider = page.getByLabel('Travel in time to an event');
  const top = async () => (await slider.boundingBox()).y;
  const before = await top();
  await slider.fill(String(started));
  await waits(page).getByText('At work').waitFor();
  assert.equal(await top(), before);
  // The moment is that of the start.
  assert.equal(await page.getByTestId('step').locator('dt', { hasText: 'Duration' }).locator('+ dd').textContent(), '0 s');
  calm(page);
  await page.done();
});

test('what is searched in logs and events is in the address, and the focus goes with the chosen tab', async () => {
  const run = await server.run({ text: plan('talks', '  - stepId: talk\n    tool: { kind: shell, cmds: ["echo one fish; echo two fish; echo red bird >&2"] }\n') });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}?tab=logs`);
  const lines = page.getByTestId('log').locator('[data-stream]');
  await page.getByLabel('Search the log').fill('fish');
  await page.getByText('2 lines').waitFor();
  await page.waitForURL(/log=fish/);
  await page.reload();
  await page.getByText('2 lines').waitFor();
  assert.equal(await page.getByLabel('Search the log').inputValue(), 'fish');
  assert.equal(await lines.count(), 2);
  await page.getByLabel('Search the log').fill('');
  await page.getByLabel('only stderr').check();
  await page.waitForURL(/stderr=1/);
  await page.reload();
  await page.getByText('1 line', { exact: true }).waitFor();
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByLabel('Type of event').selectOption('StepCompleted');
  await page.waitForURL(/type=StepCompleted/);
  await page.reload();
  await page.locator('#tab-panel [data-list] button').first().waitFor();
  assert.equal(await page.locator('#tab-panel [data-list] button').count(), 1);
  assert.equal(await page.getByLabel('Type of event').inputValue(), 'StepCompleted');
  await page.getByRole('tab', { name: 'Timeline' }).click();
  await page.keyboard.press('5');
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-state');
  calm(page);
  await page.done();
});
