// The page of one run, through a real browser and a real server: what people who had never seen it found wrong.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { APPROVAL, calm, closeBrowser, forPerson, open, plan, SAGA, Served, state, waits } from './support.mjs';

let server;
before(async () => {
  server = await new Served().start();
});
after(async () => {
  await closeBrowser();
  await server.stop();
});

const WAITS_FOR_EVENT = `workflowType: ONBOARD
workflowVersion: 1
bizKey: "{{ workload.customer }}"
steps:
  - stepType: KYC
    waitFor: { event: kyc.done }
`;
const DAG = `apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: { name: order-dag, version: "3", owner: shop-team }
spec:
  steps:
    - { name: sign-off, gate: approval, agent: boss, action: Is this order fine? }
    - { name: ship, dependsOn: [sign-off], tool: { kind: noop } }
`;

test('the maker of a run is told beforehand on its page why another person must answer, and a new name changes it at once', async () => {
  await server.register(APPROVAL, 'pay-out.yaml');
  const run = (await server.ask('POST', '/api/v1/runs', { definition: { name: 'pay-out' }, params: { amount: 47 } }, { 'stepwell-actor': 'ada' })).runId;
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`, { actor: 'ada' });
  await waits(page).getByText('Waits for approval by a person other than ada before it starts').waitFor();
  await waits(page).getByTestId('forbidden').getByText('ada started the run').waitFor();
  assert.ok(await waits(page).getByRole('button', { name: 'Answer' }).isDisabled());
  // The step that holds the run is not one that was never reached.
  const node = page.locator('[data-step=approve-payment]');
  await node.getByText('waits for approval').waitFor();
  assert.match(await node.getAttribute('class'), /tone-wait/);
  // The same page for another person.
  await page.getByRole('button', { name: 'ada' }).click();
  await page.getByRole('dialog').getByLabel('Name').fill('grace');
  await page.getByRole('dialog').getByRole('button', { name: 'Use this name' }).click();
  await waits(page).getByRole('button', { name: 'Answer' }).and(page.locator(':enabled')).click();
  // The dialog says what is decided.
  const asked = page.getByTestId('asked');
  await asked.getByText('pay-out, version 1').waitFor();
  await asked.getByText('47').first().waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Approve', exact: true }).click();
  await page.getByText('Approved: approve-payment of pay-out.').waitFor();
  await state(page).getByText('Succeeded').waitFor();
  calm(page);
  await page.done();
});

test('a wait for an event is no wait for an approval, and the page has the business key and the labels', async () => {
  const run = await server.run({ text: WAITS_FOR_EVENT }, { customer: 'ACME-7' }, { labels: { team: 'green', tier: 'gold', region: 'eu', odd: 'a,b' } });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  await state(page).getByText('waits for an event').waitFor();
  assert.ok(!/approval/.test(await state(page).textContent()));
  await waits(page).getByText('Waits for event kyc.done').waitFor();
  await waits(page).getByText('An event of this type comes.').waitFor();
  const facts = page.getByTestId('facts');
  await facts.getByRole('link', { name: 'ACME-7' }).waitFor();
  for (const label of ['team=green', 'tier=gold', 'region=eu', 'odd=a,b']) await facts.getByText(label).waitFor();
  // A label leads to the runs that have it, also one with a comma.
  await facts.getByText('odd=a,b').click();
  await page.locator(`a[href*="${run}"]`).first().waitFor();
  await page.goBack();
  await waits(page).getByRole('button', { name: 'Send the event' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Send an event' }).click();
  await state(page).getByText('COMPLETED').waitFor();
  calm(page);
  await page.done();
});

test('a page that was opened while the server was away shows each event after it is back', async (t) => {
  const own = await new Served().start();
  t.after(() => own.stop());
  const run = await own.run({ text: plan('two-waits', '  - stepId: one\n    waitFor: { event: first }\n  - stepId: two\n    waitFor: { event: second }\n  - stepId: three\n    waitFor: { event: third }\n') });
  await own.until(run, forPerson);
  const page = await open(own, '#/definitions');
  await page.getByRole('heading', { name: 'Definitions' }).waitFor();
  await own.kill();
  await page.evaluate((id) => (location.hash = `#/runs/${id}`), run);
  await page.getByText('cannot be reached').first().waitFor();
  await own.start();
  await waits(page).getByText('Waits for event first').waitFor({ timeout: 20_000 });
  // One event at a time, with nothing after it: the page must not wait for the next one.
  for (const [sent, next] of [['first', 'second'], ['second', 'third']]) {
    await own.ask('POST', `/api/v1/runs/${run}/events`, { id: `e-${sent}`, type: sent });
    await waits(page).getByText(`Waits for event ${next}`).waitFor({ timeout: 5000 });
  }
  await page.done();
});

test('a moment of the past has only the logs and types of events of then, and the slider keeps the focus', async () => {
  const run = await server.run({ text: plan('logged', '  - stepId: one\n    tool: { kind: shell, cmds: ["echo first words"] }\n  - stepId: two\n    dependsOn: [one]\n    tool: { kind: shell, cmds: ["echo last words"] }\n') });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}?tab=logs`);
  await page.getByTestId('log').getByText('last words').waitFor();
  const events = (await server.ask('GET', `/api/v1/runs/${run}/events`)).events;
  const second = events.find((it) => it.stepId === 'two' && it.eventType === 'StepStarted').runSeq;
  const slider = page.getByLabel('Travel in time to an event');
  await slider.focus();
  await slider.fill(String(second - 1));
  await page.getByTestId('log').getByText('first words').waitFor();
  assert.deepEqual(await page.getByLabel('Step', { exact: true }).locator('option').allTextContents(), ['one']);
  // Step by step with the keyboard.
  for (let i = 2; i < 5; i++) {
    await page.keyboard.press('ArrowLeft');
    await page.waitForURL(new RegExp(`at=${second - i}\\b`));
    await page.waitForTimeout(250);
    assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('aria-label')), 'Travel in time to an event');
  }
  await page.getByRole('tab', { name: 'Events' }).click();
  await page.getByText(new RegExp(`chain verified, ${second - 4} of ${events.length} events`)).waitFor();
  const types = await page.getByLabel('Type of event').locator('option').allTextContents();
  assert.ok(!types.includes('RunCompleted'), types.join());
  calm(page);
  await page.done();
});

test('a failed run opens the log of what failed, in lines that fit, without the codes of terminals', async () => {
  const long = 'x'.repeat(200);
  const run = await server.run({ text: plan('fails', `  - stepId: fetch\n    tool: { kind: shell, cmds: ["printf '\\\\033[31mred\\\\033[0m words\\\\n'; echo ${long} the end >&2; exit 4"] }\n`) });
  await server.until(run, (it) => it.status === 'FAILED');
  const page = await open(server, `#/runs/${run}?tab=logs`, { width: 375, height: 800 });
  const log = page.getByTestId('log');
  await log.getByText('red words').waitFor();
  await log.getByText('the end').first().waitFor();
  assert.ok(!(await log.textContent()).includes('[31m'));
  // Nothing is outside of the box on a phone, neither here nor in the cause, which has the end of the log on other views.
  const fits = async (box) => assert.ok(await box.evaluate((it) => it.scrollWidth <= it.clientWidth + 1));
  await fits(log.locator('[data-list]'));
  // The note names the code; a class that says nothing is left out.
  await log.getByText(/failed: SHELL_EXIT/).waitFor();
  assert.ok(!/failed: unknown/.test(await log.textContent()));
  const [file] = await Promise.all([page.waitForEvent('download'), page.getByLabel('Download the log').click()]);
  assert.match(file.suggestedFilename(), /fetch-1\.log$/);
  await page.getByRole('tab', { name: 'Graph' }).click();
  await fits(page.getByTestId('cause').locator('pre'));
  calm(page);
  await page.done();
});

test('who cancelled a run and who paused it, and why, is on its page', async () => {
  const run = (await server.ask('POST', '/api/v1/runs', { definition: { text: SAGA } })).runId;
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`, { actor: 'otto' });
  await page.getByRole('button', { name: 'Pause' }).click();
  await page.getByRole('dialog').getByLabel('Reason').fill('look at the price');
  await page.getByRole('dialog').getByRole('button', { name: 'Pause the run' }).click();
  await waits(page).getByText('An operator: the run is paused by otto (look at the price)').waitFor();
  await waits(page).getByRole('button', { name: 'Resume', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Resume the run' }).click();
  await state(page).getByText('Paused').waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Cancel' }).click();
  await page.getByLabel('Reason').fill('wrong customer');
  await page.getByRole('button', { name: 'Cancel and undo' }).click();
  const stopped = page.getByTestId('stopped');
  await stopped.getByText('Cancelled by').waitFor();
  assert.match(await stopped.textContent(), /otto.*wrong customer/s);
  await state(page).getByText('Cancelled').waitFor({ timeout: 20_000 });
  // On the graph: what was undone, and what cannot be.
  await page.locator('[data-step=hotel] [data-undo=done]').waitFor();
  await page.locator('[data-step=newsletter] [data-undo=not_compensable]').waitFor();
  calm(page);
  await page.done();
});

test('a step that was enabled late waits since then, and a held step is named with what can be done', async () => {
  const run = await server.run({ text: plan('late', '  - stepId: gate\n    waitFor: { event: go }\n  - stepId: deploy\n    dependsOn: [gate]\n    kind: deploy\n    queue: nobody-serves-this\n') });
  await server.until(run, forPerson);
  await new Promise((done) => setTimeout(done, 2500));
  const sent = Date.now();
  await server.ask('POST', `/api/v1/runs/${run}/events`, { id: 'go', type: 'go' });
  const view = await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'task'));
  const since = Date.parse(view.ext.waitsFor.find((it) => it.kind === 'task').since);
  assert.ok(Math.abs(since - sent) < 2000, `${since - sent} ms after the event`);
  const held = await server.run({ text: plan('holds', '  - stepId: deliver\n    tool: { kind: shell, cmds: ["exit 3"] }\n', '  onStepFailure: hold\n  holdTimeout: 1h\n') });
  await server.until(held, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'operator'));
  const page = await open(server, `#/runs/${held}`);
  await state(page).getByText('held').waitFor();
  await waits(page).getByText('A person: the step has failed and is held').waitFor();
  await waits(page).getByRole('button', { name: 'deliver' }).first().waitFor();
  await waits(page).getByRole('button', { name: 'Skip' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Skip the step' }).click();
  await state(page).getByText('COMPLETED').waitFor();
  calm(page);
  await page.done();
});

test('a retry says which revision it has, and a newer one is offered', async () => {
  const text = (code) => plan('corrected-plan', `  - stepId: only\n    tool: { kind: shell, cmds: ["exit ${code}"] }\n`);
  await server.register(text(1), 'corrected-plan.yaml');
  const run = await server.run({ name: 'corrected-plan' });
  await server.until(run, (it) => it.status === 'FAILED');
  await server.register(text(0), 'corrected-plan.yaml');
  const page = await open(server, `#/runs/${run}`);
  const facts = page.getByTestId('facts');
  await facts.getByText('revision 1').waitFor();
  await facts.getByText('not the current one: that is 2').waitFor();
  assert.match(await facts.getByRole('link', { name: /revision 1/ }).getAttribute('href'), /revision=1/);
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByTestId('newer').getByRole('button', { name: 'Rerun with revision 2 instead' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Start the run' }).click();
  await page.waitForURL((it) => /run_/.test(it.hash) && !it.hash.includes(run));
  await state(page).getByText('COMPLETED').waitFor();
  await page.getByTestId('facts').getByText('revision 2').waitFor();
  calm(page);
  await page.done();
});

test('a gate of a dag waits with a hand, and the times of the timeline have 24 hours', async () => {
  const run = await server.run({ text: DAG });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  const node = page.locator('[data-step=sign-off]');
  await node.getByText('waits for approval').waitFor();
  assert.equal(await node.locator('.turning').count(), 0);
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await page.getByTestId('asked').getByText('Is this order fine?').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('tab', { name: 'Graph' }).focus();
  await page.keyboard.press('ArrowRight');
  await page.getByTestId('timeline').waitFor();
  const hour = await page.evaluate(() => String(new Date().getHours()).padStart(2, '0'));
  await page.getByTestId('timeline').getByText(new RegExp(`^${hour}:\\d\\d:\\d\\d`)).first().waitFor();
  calm(page);
  await page.done();
});

test('a chosen step that has written nothing has no log of another, and a moment that does not exist says so in place', async () => {
  const run = await server.run({ text: plan('quiet', '  - stepId: loud\n    tool: { kind: shell, cmds: ["echo words"] }\n  - stepId: waits\n    dependsOn: [loud]\n    waitFor: { event: never }\n') });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}?tab=logs&step=waits`);
  await page.getByText('waits has written nothing').waitFor();
  assert.equal(await page.getByTestId('log').getByText('words').count(), 0);
  await page.getByLabel('Step', { exact: true }).selectOption('loud');
  await page.getByTestId('log').getByText('words').waitFor();
  await page.goto(`${server.url}/#/runs/${run}?at=99999`);
  await page.getByTestId('nowhere').getByText('the run has events 1 to').waitFor();
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByTestId('nowhere').waitFor({ state: 'detached' });
  await page.goto(`${server.url}/#/runs/${run}?step=nosuch`);
  await page.getByText('The definition of the run has no step of this name.').waitFor();
  calm(page);
  await page.done();
});

test('the item of a loop has its own times and output, and each guard what was recorded', async () => {
  const example = readFileSync(new URL('../src/welcome/hello.yaml', import.meta.url), 'utf8');
  const run = await server.run({ text: example });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}?step=${encodeURIComponent('greet[3]')}`);
  const panel = page.getByTestId('step');
  await panel.getByText('item 3 of').waitFor();
  await panel.getByText('Hello, Margaret').waitFor();
  await page.locator('[data-step=prepare]').click();
  await panel.getByText('true: taken').waitFor();
  await panel.getByText('not looked at').waitFor();
  await page.done();
});

test('the slider is dragged with the mouse from now to the beginning', async () => {
  const run = await server.run({ text: SAGA });
  const { lastEventSeq: last } = await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  await page.locator('[data-step=hotel][data-word=Succeeded]').waitFor();
  const box = await page.getByLabel('Travel in time to an event').boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width - 8, y);
  await page.mouse.down();
  const values = [];
  for (let part = 19; part >= 0; part--) {
    await page.mouse.move(box.x + 8 + (part / 20) * (box.width - 16), y);
    await page.waitForTimeout(60);
    values.push(await page.getByLabel('Travel in time to an event').evaluate((it) => Number(it.value)));
  }
  // It follows the mouse all the way: nothing is drawn anew under it, and its width stays.
  assert.deepEqual(values, [...values].sort((a, b) => b - a));
  await page.mouse.up();
  await page.getByTestId('travel').getByText(`At event 1 of ${last}`).waitFor();
  await page.locator('[data-step=flight][data-word=Pending]').waitFor();
  calm(page);
  await page.done();
});

test('who has approved is not asked again, and the wait began before the first approval', async () => {
  const run = await server.run({ text: plan('two-people', '  - stepId: sign\n    description: Release notes read?\n    approval: { approvers: 2 }\n') });
  const before = (await server.until(run, forPerson)).ext.waitsFor.find((it) => it.stepId === 'sign');
  const page = await open(server, `#/runs/${run}`, { actor: 'grace' });
  await new Promise((done) => setTimeout(done, 1100));
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await page.getByTestId('asked').getByText('Release notes read?').waitFor();
  await page.getByRole('dialog').getByRole('button', { name: 'Approve', exact: true }).click();
  await waits(page).getByText('1 of 2 approvals by grace; another person must approve').waitFor();
  await waits(page).getByTestId('forbidden').getByText('grace has approved already').waitFor();
  assert.ok(await waits(page).getByRole('button', { name: 'Answer' }).isDisabled());
  const after = (await server.ask('GET', `/api/v1/runs/${run}`)).ext.waitsFor.find((it) => it.stepId === 'sign');
  assert.equal(after.since, before.since);
  calm(page);
  await page.done();
});

test('only stderr finds the lines in the whole log, not only in the part that is here', async () => {
  const run = await server.run({ text: plan('noisy', `  - stepId: print\n    tool:\n      kind: python\n      code: |\n        import sys, time\n        print("the only problem", file=sys.stderr, flush=True)\n        time.sleep(0.3)\n        for n in range(20000):\n            print("line", n, "x" * 60)\n`) });
  await server.until(run, (it) => it.status === 'COMPLETED', 60_000);
  const page = await open(server, `#/runs/${run}?tab=logs`);
  await page.getByTestId('log').getByText('line 19999').waitFor();
  assert.equal(await page.getByTestId('log').getByText('the only problem').count(), 0);
  await page.getByLabel('only stderr').check();
  await page.getByTestId('log').getByText('the only problem').waitFor();
  await page.getByText('1 line', { exact: true }).waitFor();
  // The line leads to its place in the log.
  await page.getByTestId('log').getByRole('button', { name: 'the only problem' }).click();
  await page.getByTestId('log').getByText('line 0 ').waitFor();
  calm(page);
  await page.done();
});

test('a run that waits for its approval says so, and one that succeeded is not offered to be retried', async () => {
  const run = await server.run({ text: plan('asks-first', '  - stepId: only\n    tool: { kind: noop }\n', '  requiresApproval: true\n') });
  const page = await open(server, `#/runs/${run}`);
  await waits(page).getByText('A person approves the run; a cancel refuses it.').waitFor();
  assert.equal(await page.getByTestId('facts').getByText('Duration').count(), 0);
  await waits(page).getByRole('button', { name: 'Approve', exact: true }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Approve', exact: true }).click();
  await state(page).getByText('COMPLETED').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Retry', exact: true }).count(), 0);
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Repeat the run' }).waitFor();
  await page.keyboard.press('Escape');
  assert.equal(await page.evaluate(() => document.activeElement?.textContent?.trim()), 'More');
  calm(page);
  await page.done();
});
