// What people with fresh eyes have found, and what must not come back.
import assert from 'node:assert/strict';
import { execFile, execFileSync } from 'node:child_process';
import { mkdirSync, symlinkSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { after, before, test } from 'node:test';
import { promisify } from 'node:util';
import { APPROVAL, button, calm, closeBrowser, FAILS_ONCE, forPerson, GREETS, open, SAGA, Served, state } from './support.mjs';

const EVENT = `workflowType: waits-for-money
workflowVersion: 1
steps:
  - { stepType: PAY, waitFor: { event: payment.done, timeout: 24h } }
`;
let server;
before(async () => {
  server = await new Served().start();
  await server.register(GREETS, 'greets.yaml');
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const rowOf = (page, run) => page.getByRole('row').filter({ has: page.getByLabel(`Select ${run}`) });

test('the keyboard: Enter does what has the focus, j and k move it, and Esc keeps the search', async () => {
  const run = await server.run({ name: 'greets' });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, '#/runs?plan=greets');
  await rowOf(page, run).waitFor();
  await page.keyboard.press('j');
  await page.waitForFunction((id) => document.activeElement?.getAttribute('href') === `#/runs/${id}`, run);
  // A link keeps its Enter, though a row is chosen.
  await page.getByRole('link', { name: 'Inbox' }).focus();
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Inbox' }).waitFor();
  await page.goto(`${server.url}/#/runs`);
  // A key before the page is there is a key for nobody.
  await page.getByLabel('Search runs').waitFor();
  await page.keyboard.press('/');
  await page.keyboard.type('greets');
  await page.waitForURL(/text=greets/);
  await page.keyboard.press('Escape');
  assert.equal(await page.getByLabel('Search runs').inputValue(), 'greets');
  assert.match(page.url(), /text=greets/);
  // The tabs of a run are one stop, with arrows between them.
  await page.goto(`${server.url}/#/runs/${run}`);
  await page.getByRole('tab', { name: 'Graph' }).focus();
  await page.keyboard.press('ArrowRight');
  assert.equal(await page.getByRole('tab', { name: 'Timeline' }).getAttribute('aria-selected'), 'true');
  await page.keyboard.press('End');
  assert.equal(await page.getByRole('tab', { name: 'Evidence' }).getAttribute('aria-selected'), 'true');
  // Esc in a menu gives the focus back.
  await page.getByRole('button', { name: 'More' }).click();
  await page.keyboard.press('Escape');
  await page.waitForFunction(() => document.activeElement?.textContent?.trim() === 'More');
  calm(page);
  await page.done();
});

test('who becomes another person sees at once what this person may do; a task is an address; an answer leads to no other task', async () => {
  const own = await new Served().start();
  await own.register(APPROVAL.replace('executionTierOverride: HumanApprove', 'executionTierOverride: HumanApprove\n    description: Is the receipt right?'), 'pay-out.yaml').catch(() => own.register(APPROVAL, 'pay-out.yaml'));
  const runs = [];
  for (const amount of [1, 2]) runs.push((await own.ask('POST', '/api/v1/runs', { definition: { name: 'pay-out' }, params: { amount } })).runId);
  for (const run of runs) await own.until(run, forPerson);
  const page = await open(own, `#/inbox?run=${runs[0]}&step=approve-payment`);
  await page.getByTestId('forbidden').getByText('anonymous started the run').waitFor();
  await page.getByTestId('forbidden').getByRole('button', { name: 'act as somebody else' }).click();
  // A name that cannot be sent is refused before it is kept: it would lock the person out.
  await page.getByRole('dialog').getByLabel('Name').fill('Zo\u200eë');
  await page.getByRole('button', { name: 'Use this name' }).click();
  await page.getByRole('dialog').getByText('characters that can be seen').waitFor();
  await page.getByRole('dialog').getByLabel('Name').fill('Zoë 李雷');
  await page.getByRole('button', { name: 'Use this name' }).click();
  await page.getByTestId('forbidden').waitFor({ state: 'detached' });
  await page.getByRole('link', { name: runs[0] }).waitFor();
  await page.getByRole('button', { name: 'Answer' }).click();
  // The dialog says what is decided on.
  await page.getByTestId('asked').getByText('"amount"').first().waitFor();
  await button(page, 'Approve').click();
  await page.getByText('Approved: approve-payment of pay-out.').waitFor();
  await page.getByText('Your answer for approve-payment of pay-out is given').waitFor();
  const { rows: audit } = await own.ask('GET', '/api/v1/audit');
  assert.ok(audit.some((it) => it.actor === 'Zoë 李雷'), JSON.stringify(audit));
  assert.equal(await page.getByRole('button', { name: 'Answer' }).count(), 0);
  await page.locator('ul').getByRole('button').filter({ hasText: 'approve-payment' }).first().click();
  await page.waitForURL(new RegExp(`run=${runs[1]}`));
  calm(page);
  await page.done();
  await own.stop();
});

test('the editor: a template of each language, a graph that says that it is old, and a text that is not lost', async () => {
  const page = await open(server, '#/definitions?new=1');
  for (const language of ['plan', 'dag', 'actions', 'linear', 'playbook']) {
    await page.getByLabel('Language').selectOption(language);
    await page.locator('.chip').getByText(language, { exact: true }).waitFor();
    await page.getByText('can be run').waitFor();
  }
  const code = page.getByRole('textbox', { name: 'Definition' });
  await code.click();
  await page.keyboard.press('Control+End');
  await page.keyboard.insertText('\n] my own words');
  await page.getByTestId('old-graph').waitFor();
  await page.getByRole('link', { name: 'Inbox' }).click();
  await page.getByRole('heading', { name: 'Inbox' }).waitFor();
  await page.goto(`${server.url}/#/definitions?new=playbook`);
  await page.getByText('which is not registered').waitFor();
  const toEnd = async () => {
    await code.click();
    await page.keyboard.press('Control+End');
  };
  await toEnd();
  await code.getByText('my own words').waitFor();
  await page.getByRole('button', { name: 'Throw it away' }).click();
  await page.getByText('can be run').waitFor();
  await toEnd();
  assert.equal(await code.getByText('my own words').count(), 0);
  // Chromium keeps the style of text that is replaced in an attribute; the policy blocks it, and the editor draws the text itself.
  page.complaints = page.complaints.filter((it) => !it.startsWith('Applying inline style'));
  calm(page);
  await page.done();
});

test('a run that is opened while the server is away is followed after it is back', async () => {
  const own = await new Served().start();
  const run = await own.run({ text: EVENT });
  await own.until(run, forPerson);
  const page = await open(own, '#/schedules');
  await page.getByText('There is no schedule').waitFor();
  await own.kill();
  await page.evaluate((id) => (location.hash = `#/runs/${id}`), run);
  await page.getByText('The server cannot be reached.').first().waitFor();
  await own.start();
  await page.getByTestId('waits').waitFor({ timeout: 20_000 });
  await page.getByRole('status').getByText('Live').waitFor({ timeout: 20_000 });
  await own.ask('POST', `/api/v1/runs/${run}/events`, { id: 'e1', type: 'payment.done', payload: {} });
  await state(page).getByText('COMPLETED').waitFor({ timeout: 15_000 });
  await page.locator('[data-step=PAY][data-word=DONE]').waitFor();
  await page.done();
  await own.stop();
});

test('what waits for an event is not called an approval, and a step that waits looks so', async () => {
  const run = await server.run({ text: EVENT });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`);
  await state(page).getByText('waits for an event').waitFor();
  await page.getByTestId('waits').getByText('An event of this type comes.').waitFor();
  await page.locator('[data-step=PAY]').getByText('waits for an event').waitFor();
  await page.goto(`${server.url}/#/runs?plan=waits-for-money`);
  await rowOf(page, run).getByText('waiting', { exact: true }).waitFor();
  assert.equal(await rowOf(page, run).getByText('approval').count(), 0);
  await server.ask('POST', `/api/v1/runs/${run}/cancel`, { reason: 'wrong customer' }, { 'stepwell-actor': 'otto' });
  await page.goto(`${server.url}/#/runs/${run}`);
  await page.getByTestId('stopped').getByText(/Cancelled by otto, .*: wrong customer/).waitFor();
  calm(page);
  await page.done();
});

test('logs: a failed run opens on the step that failed, and a moment has only what had begun; colours of terminals are no boxes', async () => {
  const text = `metadata: { planId: colours, planVersion: 1.0.0, schemaVersion: v1.2, requiresCapabilities: [basic-execution], fallbackBehavior: reject }
steps:
  - { stepId: first, tool: { kind: shell, cmds: ["printf '\\\\033[31mred\\\\033[0m\\\\n'"] }, compensation: { tool: { kind: shell, cmds: ["echo undone"] } } }
  - { stepId: second, tool: { kind: shell, cmds: ["echo it breaks >&2; exit 4"] } }
`;
  const run = await server.run({ text });
  const view = await server.until(run, (it) => it.status === 'FAILED');
  const page = await open(server, `#/runs/${run}?tab=logs`);
  await page.getByTestId('log').getByText('it breaks').first().waitFor();
  assert.equal(await page.getByLabel('Step', { exact: true }).inputValue(), 'second');
  await page.getByLabel('Step', { exact: true }).selectOption('first');
  await page.getByTestId('log').getByText('red', { exact: true }).waitFor();
  const events = (await server.ask('GET', `/api/v1/runs/${run}/events`)).events;
  const before = events.find((it) => it.eventType === 'StepStarted' && it.stepId === 'second').runSeq - 1;
  await page.goto(`${server.url}/#/runs/${run}?tab=logs&at=${before}`);
  // The log of now is still shown until the moment has been read.
  await page.getByLabel('Step', { exact: true }).locator('option').nth(1).waitFor({ state: 'detached' });
  assert.deepEqual(await page.getByLabel('Step', { exact: true }).locator('option').allTextContents(), ['first']);
  await page.goto(`${server.url}/#/runs/${run}?tab=events&at=${before}`);
  await page.getByText(`chain verified, ${before} of ${events.length} events`).waitFor();
  assert.ok(!(await page.getByLabel('Type of event').locator('option').allTextContents()).includes('RunFailed'));
  assert.ok(view.ext.planHash);
  calm(page);
  await page.done();
});

test('the list: a click on a row opens it, rows are selected at once, a label is looked for as it is shown, and the numbers fit', async () => {
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const runs = [];
  for (let i = 0; i < 4; i++) runs.push(await own.run({ name: 'greets' }, {}, { labels: { team: i % 2 ? 'blue' : 'green', shift: 'night' } }));
  for (const run of runs) await own.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(own, '#/runs');
  await page.getByTestId('loaded').getByText('4 runs').waitFor();
  runs.push(await own.run({ name: 'greets' }));
  await page.getByTestId('loaded').getByText('5 runs').waitFor();
  const boxes = page.getByRole('checkbox', { name: /^Select run_/ });
  await boxes.nth(0).click();
  await boxes.nth(2).click({ modifiers: ['Shift'] });
  await page.getByText('3 selected').waitFor();
  await page.getByRole('checkbox', { name: 'Select all runs that are loaded' }).check();
  await page.getByText('5 selected').waitFor();
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  await page.getByLabel('Search runs').fill('team=green');
  await page.getByLabel('Search runs').press('Enter');
  await page.waitForURL(/labels=team/);
  await page.getByTestId('loaded').getByText('2 runs').waitFor();
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  await rowOf(page, runs[1]).getByText('playbook').click();
  await page.waitForURL(new RegExp(runs[1]));
  // The run has its labels, and its revision is a link.
  await page.getByRole('link', { name: 'shift=night' }).waitFor();
  await page.getByRole('link', { name: /revision 1/ }).waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('a run is repeated with the revision that was corrected', async () => {
  const text = GREETS.replace('name: greets', 'name: corrected').replace('echo {{ workload.greeting }}', 'exit 3');
  await server.register(text, 'corrected.yaml');
  const run = await server.run({ name: 'corrected' });
  await server.until(run, (it) => it.status === 'FAILED');
  await server.register(text.replace('exit 3', 'echo corrected'), 'corrected.yaml');
  const page = await open(server, `#/runs/${run}`);
  await page.getByText('not the current one').waitFor();
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  await page.getByRole('dialog').getByText('Revision 2 is current now').waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Rerun with edited input' }).click();
  await page.getByRole('dialog').getByLabel('Definition').selectOption({ label: 'revision 2, version 1: the current one' }).catch(async () => page.getByRole('dialog').getByLabel('Definition').selectOption({ index: 1 }));
  await button(page, 'Start the run').click();
  await page.waitForURL((it) => /#\/runs\/run_/.test(it.href) && !it.href.includes(run));
  await state(page).getByText('success').waitFor();
  calm(page);
  await page.done();
});

test('the command of the welcome works as it is written, and its run appears', async () => {
  const own = await new Served().start();
  const page = await open(own, '#/welcome');
  const command = await page.getByTestId('command').textContent();
  const bin = join(own.folder, 'bin');
  mkdirSync(bin);
  symlinkSync(resolve(own.bin), join(bin, 'stepwell'));
  await promisify(execFile)('sh', ['-c', command], { cwd: bin, env: { ...process.env, PATH: `${bin}:${process.env.PATH}`, STEPWELL_STORE: '', STEPWELL_CONFIG: '' }, timeout: 60_000 });
  await page.goto(`${own.url}/#/runs`);
  await page.getByRole('row').getByRole('link', { name: 'hello', exact: true }).waitFor();
  await page.goto(`${own.url}/#/nowhere`);
  await page.getByText('There is no page at this address.').waitFor();
  await page.goto(`${own.url}/#/errors/PY_ValueError`);
  await page.getByRole('table').getByRole('columnheader', { name: 'class' }).waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('work that nobody serves is listed by queue, with what to do', async () => {
  const own = await new Served(['--no-worker']).start();
  const run = await own.run({ text: GREETS });
  const page = await open(own, '#/queue');
  const row = page.getByTestId('unserved').getByRole('row').filter({ hasText: 'pipeline' });
  await row.getByText(`stepwell worker --server ${own.url}`).waitFor();
  await row.getByRole('link', { name: '1, in 1 run' }).click();
  await rowOf(page, run).getByTestId('held').getByText('no worker').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('a viewer is offered nothing that is refused; a wrong token is explained, and looking at the sign-in is no entry of the audit log', async () => {
  const own = await new Served(['--access', 'tokens']).start();
  const token = (name, role) => /swt_\S+/.exec(execFileSync(own.bin, ['token', 'create', name, '--role', role, '--store', join(own.folder, 'stepwell.db')], { cwd: own.folder }).toString())[0];
  const [viewer, operator, admin] = [token('vera', 'viewer'), token('otto', 'operator'), token('ada', 'admin')];
  const run = (await own.ask('POST', '/api/v1/runs', { definition: { text: SAGA } }, { authorization: `Bearer ${operator}` })).runId;
  const page = await open(own, '#/runs');
  await page.getByLabel('Token').fill('swt_wrong');
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByText('This token is not valid').waitFor();
  await page.getByRole('link', { name: 'TOKEN_INVALID' }).click();
  await page.getByRole('heading', { name: 'TOKEN_INVALID', level: 1 }).waitFor();
  await page.getByRole('link', { name: 'Back to the sign-in' }).click();
  await page.getByLabel('Token').fill(viewer);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.getByRole('row').nth(1).waitFor();
  assert.equal(await page.getByRole('checkbox').count(), 0);
  await page.goto(`${own.url}/#/runs/${run}`);
  await page.getByTestId('waits').getByTestId('forbidden').getByText('approve').waitFor();
  assert.ok(await page.getByTestId('waits').getByRole('button', { name: 'Answer' }).isDisabled());
  for (const [hash, says] of [['tokens', 'tokens'], ['audit', 'the audit log'], ['sources', 'sources']]) {
    await page.goto(`${own.url}/#/${hash}`);
    await page.getByText(`Your roles do not show ${says}`).waitFor();
    assert.equal(await page.locator('main').getByRole('button').count(), 0);
  }
  await page.goto(`${own.url}/#/definitions?new=1`);
  await page.getByText('can be run').waitFor();
  assert.equal(await page.getByRole('button', { name: 'Register' }).count(), 0);
  const { rows } = await own.ask('GET', '/api/v1/audit?accepted=false', undefined, { authorization: `Bearer ${admin}` });
  assert.deepEqual(rows.filter((it) => it.action === 'GET /api/v1/session'), []);
  assert.ok(rows.some((it) => it.action === 'POST /api/v1/session'), 'a wrong token is');
  await page.done();
  await own.stop();
});

test('a failed step that is held says so in the head of its run, and in its wait', async () => {
  const run = await server.run({ text: FAILS_ONCE(join(server.folder, 'never')) });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'operator'));
  const page = await open(server, `#/runs/${run}`);
  await state(page).getByText('held').waitFor();
  await page.getByTestId('waits').getByRole('button', { name: 'deliver', exact: true }).first().waitFor();
  await page.getByTestId('waits').getByText('the step has failed and is held').waitFor();
  calm(page);
  await page.done();
});

test('a definition of another tenant is started and edited for its tenant; addresses that lead nowhere say so', async () => {
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const theirs = GREETS.replace('step: greet', 'step: theirs');
  await own.ask('POST', '/api/v1/definitions', { text: theirs, file: 'greets.yaml', tenant: 'acme' });
  const page = await open(own, '#/definitions/greets?tenant=acme');
  await page.getByRole('button', { name: 'Start a run' }).click();
  await page.getByRole('dialog').getByRole('heading', { name: 'Start greets of acme' }).waitFor();
  await button(page, 'Start the run').click();
  await page.waitForURL(/#\/runs\/run_/);
  await page.locator('[data-step=theirs]').waitFor();
  await page.goto(`${own.url}/#/definitions/greets?tenant=acme&edit=1`);
  const code = page.getByRole('textbox', { name: 'Definition' });
  await code.click();
  await page.keyboard.press('Control+End');
  await page.keyboard.insertText('\n# changed\n');
  await page.getByRole('button', { name: 'Register' }).click();
  await page.getByText('greets is registered as revision 2.').waitFor();
  assert.equal((await own.ask('GET', '/api/v1/definitions/greets?tenant=acme')).current, 2);
  assert.equal((await own.ask('GET', '/api/v1/definitions/greets?tenant=local')).current, 1);
  await page.goto(`${own.url}/#/definitions/greets?revision=77`);
  await page.getByText('There is no revision 77 of greets').waitFor();
  const run = await own.run({ name: 'greets' }, {}, { tenant: 'local' });
  await own.until(run, (it) => it.status === 'COMPLETED');
  await page.goto(`${own.url}/#/runs/${run}?at=99999`);
  await page.getByTestId('nowhere').getByText('There is no event 99999').waitFor();
  await page.getByTestId('travel').getByText('Now').waitFor();
  // The slider stays under the hand that moves it.
  const slider = page.getByLabel('Travel in time to an event');
  await slider.focus();
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press('ArrowLeft');
    await page.waitForTimeout(300);
  }
  const last = (await own.ask('GET', `/api/v1/runs/${run}`)).lastEventSeq;
  assert.match(page.url(), new RegExp(`at=${last - 3}`));
  await page.done();
  await own.stop();
});
