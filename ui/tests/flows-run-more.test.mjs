// The page of one run, through a real browser and a real server: words, moments and dialogs that people with fresh eyes found wrong.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { APPROVAL, button, calm, closeBrowser, forPerson, open, plan, SAGA, Served, state, waits } from './support.mjs';

let server;
before(async () => {
  server = await new Served().start();
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const slider = (page) => page.getByLabel('Travel in time to an event');
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const loop = (name, items, code, more = '') => `apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: ${name} }
workload: { items: [${items.join()}] }
workflow:
  - step: first
    tool: { kind: noop }
    next: { arcs: [{ step: each }] }
  - step: each
    loop: { in: "{{ workload.items }}", iterator: it, spec: { mode: sequential, policy: { failure: { mode: continue } } } }
    tool:
${code}
${more}`;
const COUNTS = `      kind: python
      args: { n: "{{ iter.it }}" }
      code: |
        if n == 3: raise ValueError("three is too many")
        result = {"n": n}`;

test('an item of a loop has its own state and its output, in the words of the language, everywhere', async () => {
  const run = await server.run({ text: loop('six', [0, 1, 2, 3, 4, 5], COUNTS) });
  const view = await server.until(run, (it) => ['COMPLETED', 'FAILED'].includes(it.status));
  const own = view.ext.steps.find((it) => it.stepId === 'first').word;
  const page = await open(server, `#/runs/${run}?step=${encodeURIComponent('each[0]')}`);
  const panel = page.getByTestId('step');
  await panel.getByText('item 0 of').waitFor();
  // The state of an item is in the log, which is still on its way.
  await panel.locator(`[data-word="${own}"]`).first().waitFor();
  await panel.getByTitle(/^each\[3\]: failed/).click();
  await panel.getByText('three is too many').waitFor();
  assert.equal(await panel.locator('[data-word]').first().getAttribute('data-word'), 'failed');
  // What each item gave, now and at a moment.
  await page.getByRole('tab', { name: 'State' }).click();
  const items = page.getByTestId('items');
  await items.getByText('each[5]').waitFor();
  assert.equal(await items.getByText('each[3]').count(), 0);
  await items.getByText('each[1]').click();
  await items.getByLabel('output of each[1]').getByText('"n"').waitFor();
  const { events } = await server.ask('GET', `/api/v1/runs/${run}/events`);
  const second = events.find((it) => it.stepId === 'each[1]' && it.eventType === 'StepCompleted').runSeq;
  await slider(page).fill(String(second - 1));
  await items.getByText('each[1]').waitFor({ state: 'hidden' });
  await items.getByText('each[0]').waitFor();
  // The moment in words, for who cannot see the slider.
  assert.match(await slider(page).getAttribute('aria-valuetext'), new RegExp(`^event ${second - 1} of ${events.length}, Step\\w+ each\\[1\\], \\d\\d:\\d\\d:\\d\\d$`));
  // The evidence has the words of the language, and says how much of it is of the moment.
  await page.getByRole('tab', { name: 'Evidence' }).click();
  await page.getByTestId('chain').getByText('Of this moment and before:').waitFor();
  assert.equal(await page.getByRole('region', { name: 'Records' }).getByText('Succeeded').count(), 0);
  await page.getByRole('region', { name: 'Records' }).getByText(own, { exact: true }).first().waitFor();
  // What is offered for a run that has ended.
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByRole('button', { name: 'More' }).click();
  const menu = page.getByRole('menu');
  await menu.getByText('The run has ended: its steps stay as they are.').first().waitFor();
  assert.ok(!/RETRY_RUN|Child runs/.test(await menu.textContent()));
  calm(page);
  await page.done();
});

test('what moves a run that is at work is said without names of the inside, and a limit is no wait', async () => {
  const text = plan('works', '  - stepId: fetch\n    timeout: 5m\n    tool: { kind: shell, cmds: ["sleep 30"] }\n');
  const run = await server.run({ text });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'lease'));
  const page = await open(server, `#/runs/${run}`);
  await waits(page).getByText('At work: Stepwell runs shell').waitFor();
  await waits(page).getByText('The run goes on when the work ends; nothing has to be done.').waitFor();
  const limit = waits(page).locator('li').filter({ hasText: 'Time limit of the attempt: the attempt fails if it has not ended by then' });
  await limit.getByText(/^At .* \(in 4 min .*, only if nothing else comes first\.$/).waitFor();
  assert.ok(!/@\d|stepwell\/pipeline|lease|comes by itself/i.test(await waits(page).textContent()), await waits(page).textContent());
  // The beginning: there is no limit of runs, so nothing is said about slots.
  await slider(page).fill('1');
  await waits(page).getByText('Its start, as soon as the limits of runs allow it').waitFor();
  assert.ok(!/slot/.test(await waits(page).textContent()));
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByRole('button', { name: 'Cancel' }).click();
  await button(page, 'Cancel the run').or(button(page, 'Cancel and undo')).click();
  await state(page).getByText('CANCELLED').waitFor();
  calm(page);
  await page.done();
});

test('a cancel lists what stays as it is, and the undo can be stopped with open eyes', async () => {
  const steps = `  - stepId: build
    tool: { kind: noop }
  - stepId: reserve
    dependsOn: [build]
    tool: { kind: noop }
    compensation: { tool: { kind: noop } }
  - stepId: ship
    dependsOn: [reserve]
    tool: { kind: noop }
    compensation: { tool: { kind: shell, cmds: ["sleep 3"] } }
  - stepId: hold
    dependsOn: [ship]
    waitFor: { event: never }
`;
  await server.register(plan('deploy', steps), 'deploy.yaml');
  const run = await server.run({ name: 'deploy' });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  await page.getByRole('button', { name: 'Cancel' }).click();
  const preview = page.getByTestId('undo-preview');
  // What is read at once is not waited for: the list comes after the dialog.
  await preview.waitFor();
  assert.deepEqual(await preview.locator('ol li').allTextContents(), ['ship', 'reserve']);
  assert.deepEqual(await page.getByTestId('stays').locator('li').allTextContents(), ['build']);
  await page.getByRole('button', { name: 'Cancel and undo' }).click();
  // An undo is called as people call it, and there is nothing to pause.
  await waits(page).getByRole('button', { name: 'undo of ship', exact: true }).waitFor();
  assert.ok(!(await page.locator('main, body').first().textContent()).includes('~undo'));
  assert.equal(await page.getByRole('button', { name: /^(Pause|Resume|Cancel)$/ }).count(), 0);
  await page.getByRole('button', { name: 'Stop the undo' }).click();
  assert.deepEqual(await page.getByTestId('undo-stop').locator('li').allTextContents(), ['reserve']);
  await button(page, 'Stop the undo').click();
  await state(page).getByText('CANCELLED').waitFor({ timeout: 20_000 });
  await state(page).getByText('partly undone').waitFor();
  // What was at work went on to its end.
  const { compensation } = (await server.ask('GET', `/api/v1/runs/${run}`)).ext;
  assert.deepEqual(compensation.map((it) => [it.stepId, it.outcome]), [['ship', 'done'], ['reserve', 'not_run']]);
  // A run that is left to be undone; the table has the same word for it.
  const second = await server.run({ name: 'deploy' });
  await server.until(second, forPerson);
  await server.ask('POST', `/api/v1/runs/${second}/cancel`, { compensate: true });
  await server.until(second, (it) => it.status === 'CANCELLED');
  await page.goto(`${server.url}/#/runs/${second}`);
  await state(page).getByText('undone', { exact: true }).waitFor();
  await page.goto(`${server.url}/#/runs?plan=deploy`);
  await page.getByText('undone', { exact: true }).first().waitFor();
  await page.getByText('partly undone').first().waitFor();
  calm(page);
  await page.done();
});

test('an action without an answer is not promised to be sent later', async (t) => {
  const own = await new Served().start();
  t.after(() => own.stop());
  const run = await own.run({ text: SAGA });
  await own.until(run, forPerson);
  const page = await open(own, `#/runs/${run}`);
  await page.getByRole('button', { name: 'Pause' }).click();
  await own.kill();
  await button(page, 'Pause the run').click();
  const alert = page.getByRole('dialog').getByRole('alert');
  await alert.getByText('The server did not answer. This is not sent again by itself').waitFor();
  assert.ok(!/asks again|tries again/.test(await alert.textContent()));
  await own.start();
  await pause(3000);
  assert.ok(!/paused/i.test((await own.ask('GET', `/api/v1/runs/${run}`)).ext.word));
  await button(page, 'Pause the run').click();
  await state(page).getByText('Paused').waitFor();
  await page.done();
});

test('a run whose step nobody serves says so beside its state, and one that needs an approval too', async () => {
  const run = await server.run({ text: plan('unserved', '  - stepId: deploy\n    kind: deploy\n    queue: nobody-is-here\n') });
  const page = await open(server, `#/runs/${run}`);
  await state(page).getByText('no worker').waitFor({ timeout: 20_000 });
  const asks = await server.run({ text: plan('asks-before', '  - stepId: only\n    tool: { kind: noop }\n', '  requiresApproval: true\n') });
  await page.goto(`${server.url}/#/runs/${asks}`);
  await state(page).getByText('waits for approval').waitFor();
  await waits(page).getByRole('button', { name: 'Approve', exact: true }).click();
  await button(page, 'Reject: cancel the run').click();
  await state(page).getByText('CANCELLED').waitFor();
  calm(page);
  await page.done();
});

test('a loop in the timeline can be closed and opened, steps are found, and no time is cut off', async () => {
  const run = await server.run({ text: loop('many', Array.from({ length: 60 }, (_, i) => i), '      kind: noop', '    next: { arcs: [{ step: after-it }] }\n  - step: after-it\n    tool: { kind: noop }\n') });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, `#/runs/${run}?tab=timeline`);
  const list = page.getByTestId('timeline').locator('[data-list]');
  // Many items are closed at first: what comes after them is seen.
  await list.getByText('after-it').waitFor();
  assert.equal(await list.getByText('each[0]').count(), 0);
  const toggle = list.getByRole('button', { name: '60 items of each' });
  await toggle.click();
  await list.getByText('each[0]', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Close the loops' }).click();
  await list.getByText('each[0]', { exact: true }).waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('each[4');
  await list.getByText('each[45]', { exact: true }).waitFor();
  assert.equal(await list.getByText('after-it').count(), 0);
  await page.getByLabel('Find a step in the timeline').fill('');
  // With the panel of a step beside it there is less room for times.
  await list.getByText('after-it').click();
  await page.getByTestId('step').waitFor();
  const cut = await page.getByTestId('timeline').evaluate((it) => {
    const head = it.firstElementChild.lastElementChild;
    return [...head.children].filter((tick) => tick.textContent && tick.getBoundingClientRect().right > head.getBoundingClientRect().right + 0.5).map((tick) => tick.textContent);
  });
  assert.deepEqual(cut, []);
  calm(page);
  await page.done();
});

test('the open dialog of an approval notices that somebody else has answered', async () => {
  const text = plan('pays', '  - stepId: pay\n    approval: { approvers: 1 }\n');
  const [run, other] = [await server.run({ text }), await server.run({ text })];
  await server.until(run, forPerson);
  await server.until(other, forPerson);
  const page = await open(server, `#/runs/${run}`, { actor: 'ada' });
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await button(page, 'Reject').waitFor();
  await server.ask('POST', `/api/v1/runs/${run}/steps/pay/complete`, { outcome: 'succeeded' }, { 'stepwell-actor': 'grace' });
  const over = page.getByTestId('over');
  await over.getByText('It is answered: approved by').waitFor();
  assert.match(await over.textContent(), /grace, \d\d:\d\d:\d\d\./);
  assert.equal(await button(page, 'Reject').count() + (await button(page, 'Approve').count()), 0);
  await button(page, 'OK').click();
  // Somebody is faster by a moment: the page has not heard of it.
  await page.goto(`${server.url}/#/runs/${other}`);
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await page.getByTestId('asked').waitFor();
  await page.route('**/api/v1/runs/*/actions*', (route) => route.abort());
  await server.ask('POST', `/api/v1/runs/${other}/steps/pay/complete`, { outcome: 'succeeded' }, { 'stepwell-actor': 'grace' });
  await button(page, 'Reject').click();
  await page.getByRole('dialog').getByText(/was answered before: approved by grace at .*; the answer rejected changes nothing/).waitFor();
  await page.unroute('**/api/v1/runs/*/actions*');
  await over.getByText('Your answer was not taken. It is answered: approved by').waitFor();
  calm(page);
  await page.done();
});

test('an event that the run does not have is no moment', async () => {
  const run = await server.run({ text: SAGA });
  const { lastEventSeq: last } = await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  for (const wrong of ['999999', '0', '-3', 'abc']) {
    await page.evaluate(([id, at]) => (location.hash = `#/runs/${id}?at=${at}`), [run, wrong]);
    await page.getByTestId('nowhere').getByText(`There is no event ${wrong}: the run has events 1 to ${last}.`).waitFor();
    await page.getByTestId('travel').getByText(`Now: event ${last} of ${last}`).waitFor();
    await page.getByRole('button', { name: 'Cancel' }).waitFor();
  }
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByTestId('nowhere').waitFor({ state: 'detached' });
  calm(page);
  await page.done();
});

test('a slider that is dragged asks for one moment at a time, and what is behind it is marked', async () => {
  const run = await server.run({ text: SAGA });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  await page.locator('[data-step=hotel][data-word=Succeeded]').waitFor();
  let [under, most, all] = [0, 0, 0];
  await page.route('**/at/*', async (route) => {
    all++;
    most = Math.max(most, ++under);
    await pause(700);
    await route.continue();
    under--;
  });
  const box = await slider(page).boundingBox();
  const y = box.y + box.height / 2;
  await page.mouse.move(box.x + box.width - 8, y);
  await page.mouse.down();
  for (let part = 19; part >= 0; part--) {
    await page.mouse.move(box.x + 8 + (part / 20) * (box.width - 16), y);
    await page.waitForTimeout(50);
  }
  await page.getByTestId('moment').getByText('Reading event').waitFor();
  await page.locator('[aria-busy=true]').waitFor();
  await page.mouse.up();
  await page.getByTestId('moment').getByText('RunCreated').waitFor();
  await page.locator('[aria-busy=false] [data-step=hotel][data-word=Pending]').waitFor();
  assert.equal(most, 1);
  assert.ok(all <= 4, `${all} requests`);
  calm(page);
  await page.done();
});

test('a moment has only the artifacts of then', async () => {
  const code = 'result = {"rows": ["x" * 100] * 20000}';
  const run = await server.run({ text: plan('keeps', `  - stepId: before\n    tool: { kind: noop }\n  - stepId: noisy\n    dependsOn: [before]\n    tool: { kind: python, code: '${code}' }\n`) });
  await server.until(run, (it) => it.status === 'COMPLETED', 60_000);
  const { events } = await server.ask('GET', `/api/v1/runs/${run}/events`);
  const began = events.find((it) => it.stepId === 'noisy' && it.eventType === 'StepStarted').runSeq;
  const page = await open(server, `#/runs/${run}?tab=state`);
  await page.getByRole('cell', { name: 'noisy' }).waitFor();
  // The button of a long value is beside its scrollbar.
  const side = await page.locator('pre').first().evaluate((it) => it.parentElement.getBoundingClientRect().right - it.parentElement.querySelector('button').getBoundingClientRect().right);
  assert.ok(side >= 15, `${side} px`);
  await slider(page).fill(String(began));
  await page.getByText('No artifact was kept at this moment').waitFor();
  await page.getByRole('button', { name: 'Back to now' }).click();
  await page.getByRole('cell', { name: 'noisy' }).waitFor();
  calm(page);
  await page.done();
});

test('who approves sees what is done after it, and a role that is missing is called by its name', async () => {
  const run = await server.run({ text: APPROVAL }, { amount: 12 });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`, { actor: 'grace' });
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await page.getByTestId('asked').getByText('money:pay').waitFor();
  await page.done();
  const watcher = await open(server, `#/runs/${run}`, { actor: 'vera', role: 'viewer' });
  await state(watcher).waitFor();
  await watcher.getByRole('button', { name: 'More' }).click();
  const menu = watcher.getByRole('menu');
  await menu.getByText('The role operator is needed.').first().waitFor();
  assert.ok(!/The right|[a-z]_run/i.test(await menu.textContent()), await menu.textContent());
  await watcher.evaluate(() => (location.hash = '#/runs/run_nope'));
  await watcher.getByRole('heading', { level: 1, name: 'Run run_nope' }).waitFor();
  calm(watcher);
  await watcher.done();
});
