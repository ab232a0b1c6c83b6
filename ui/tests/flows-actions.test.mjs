// The actions of every page, each tried against a real server, with what a refusal shows.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHmac } from 'node:crypto';
import { writeFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { APPROVAL, button, calm, closeBrowser, FAILS_ONCE, GREETS, HOOK_SECRET, open, refused, SAGA, Served, state } from './support.mjs';

const WAITS = `workflowType: waits-for-money
workflowVersion: 1
steps:
  - { stepType: PAY, waitFor: { event: payment.done, timeout: 24h } }
`;
let server;
before(async () => {
  server = await new Served().start();
  await server.register(GREETS, 'greets.yaml');
  await server.register(WAITS, 'waits.yaml');
});
after(async () => {
  await closeBrowser();
  await server.stop();
});

test('a schedule is made, refused, changed, paused, resumed and deleted', async () => {
  const page = await open(server, '#/schedules', { actor: 'grace' });
  await page.getByText('There is no schedule').waitFor();
  await page.getByRole('button', { name: 'New schedule' }).click();
  await page.getByLabel('Name').fill('nightly');
  await page.getByLabel('Definition').fill('greets');
  await page.getByLabel('Cron line').fill('61 2 * * *');
  await button(page, 'Save').click();
  await refused(page, 'SCHEDULE_INVALID', 'is no minute');
  await page.getByLabel('Cron line').fill('5 2 * * *');
  await page.getByLabel('Parameters, as JSON').fill('{ "greeting": ');
  await button(page, 'Save').click();
  await page.getByRole('dialog').getByText('The text is not JSON').waitFor();
  await page.getByLabel('Parameters, as JSON').fill('{ "greeting": "Good night" }');
  await button(page, 'Save').click();
  const row = page.getByRole('row').filter({ hasText: 'nightly' });
  await row.getByText('5 2 * * *').waitFor();
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByText('paused').waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  await row.getByText('paused').waitFor({ state: 'detached' });
  await row.getByRole('button', { name: 'nightly' }).click();
  await page.waitForURL(/name=nightly/);
  await page.getByText('Changed by').waitFor();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Cron line').fill('0 3 * * *');
  await button(page, 'Save').click();
  await row.getByText('0 3 * * *').waitFor();
  const kept = await server.ask('GET', '/api/v1/schedules/nightly');
  assert.deepEqual([kept.cron, kept.params, kept.changedBy], ['0 3 * * *', { greeting: 'Good night' }, 'grace']);
  await page.getByRole('button', { name: 'Delete' }).click();
  await button(page, 'Delete').click();
  await page.getByText('There is no schedule').waitFor();
  calm(page);
  await page.done();
});

test('a webhook is made and refused; a signed delivery starts a run; it is turned off and deleted', async () => {
  const page = await open(server, '#/webhooks');
  await page.getByText('There is no webhook').waitFor();
  await page.getByRole('button', { name: 'New webhook' }).click();
  await page.getByLabel('Name', { exact: true }).fill('hook');
  await page.getByLabel('Definition').fill('greets');
  await page.getByLabel('Reference to the secret, never').fill('hunter2');
  await button(page, 'Save').click();
  await refused(page, 'WEBHOOK_INVALID', 'a reference such as');
  await page.getByLabel('Reference to the secret, never').fill('${secret:HOOK}');
  await page.getByLabel('Headers that runs get').fill('X-GitHub-Event');
  await button(page, 'Save').click();
  await page.waitForURL(/name=hook/);
  const address = await page.locator('aside code').first().textContent();
  assert.ok(address.endsWith('/hooks/local/hook'), address);
  const deliver = (id) => {
    const body = '{"zen":"Keep it logically awesome."}';
    const signature = `sha256=${createHmac('sha256', HOOK_SECRET).update(body).digest('hex')}`;
    return fetch(address, { method: 'POST', body, headers: { 'x-hub-signature-256': signature, 'x-github-event': 'ping', 'x-github-delivery': id, 'content-type': 'application/json' } });
  };
  assert.equal((await deliver('one')).status, 202);
  await page.goto(`${server.url}/#/runs?plan=greets`);
  await page.getByRole('row').getByRole('link', { name: 'greets' }).click();
  await page.getByRole('tab', { name: 'State' }).click();
  await page.getByText('Keep it logically awesome.').first().waitFor();
  await page.goto(`${server.url}/#/webhooks?name=hook`);
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Reference to the secret, never').fill('${secret:HOOK}');
  await page.getByLabel('Accept deliveries').uncheck();
  await button(page, 'Save').click();
  await page.getByRole('row').filter({ hasText: 'hook' }).getByText('off').waitFor();
  assert.ok((await deliver('two')).status >= 400);
  await page.getByRole('button', { name: 'Delete' }).click();
  await button(page, 'Delete').click();
  await page.getByText('There is no webhook').waitFor();
  calm(page);
  await page.done();
});

test('a sink is registered and refused; what it does not take becomes a dead letter, which is delivered again', async () => {
  const own = await new Served().start();
  let answer = 500;
  const came = [];
  const receiver = createServer((request, response) => {
    request.resume().on('end', () => {
      came.push(answer);
      response.writeHead(answer).end();
    });
  });
  await new Promise((done) => receiver.listen(0, '127.0.0.1', done));
  const page = await open(own, '#/outbox');
  await page.getByRole('button', { name: 'Register a sink' }).click();
  await page.getByLabel('Name').fill('warehouse');
  await page.getByLabel('Address').fill('ftp://example.com');
  await button(page, 'Register').click();
  await refused(page, 'REQUEST_INVALID', 'webhook:https://HOST/PATH');
  await page.getByLabel('Address').fill(`webhook:http://127.0.0.1:${receiver.address().port}/events`);
  await button(page, 'Register').click();
  await page.getByRole('row').filter({ hasText: 'warehouse' }).waitFor();
  await own.run({ text: GREETS });
  for (const end = Date.now() + 20_000; !came.length && Date.now() < end; ) await new Promise((done) => setTimeout(done, 100));
  // As if it had been tried for hours: the next failure is the last.
  const late = 'import sqlite3,sys; it=sqlite3.connect(sys.argv[1],timeout=10); it.execute("UPDATE outbox SET attempts=24, due_at=0"); it.commit()';
  const letters = page.locator('section').filter({ hasText: 'Dead letters' }).getByRole('row').filter({ hasText: 'warehouse' });
  for (const end = Date.now() + 30_000; !(await letters.count()) && Date.now() < end; await page.waitForTimeout(1000)) execFileSync('python3', ['-c', late, join(own.folder, 'stepwell.db')]);
  await letters.first().getByText('answered with status 500').waitFor();
  answer = 200;
  await letters.first().getByRole('button', { name: 'Deliver again' }).click();
  await page.getByText('The delivery to warehouse is tried again.').waitFor();
  for (const end = Date.now() + 20_000; !came.includes(200) && Date.now() < end; ) await new Promise((done) => setTimeout(done, 100));
  assert.ok(came.includes(200));
  await page.getByRole('row').filter({ hasText: 'warehouse' }).first().getByRole('button', { name: 'Remove' }).click();
  await button(page, 'Remove').click();
  await page.getByText('No sink is registered').waitFor();
  calm(page);
  await page.done();
  receiver.closeAllConnections();
  receiver.close();
  await own.stop();
});

test('an emergency stop raises an alert, which leads to its run and its explanation', async () => {
  const run = await server.run({ text: SAGA });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const page = await open(server, `#/runs/${run}`);
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Send a signal' }).click();
  await page.getByRole('dialog').getByRole('combobox').selectOption('EMERGENCY_STOP');
  await page.getByRole('dialog').getByText('Ends the run at once').waitFor();
  await page.getByLabel('Reason, which the log keeps').fill('the hotel is on fire');
  await button(page, 'Stop the run at once').click();
  await state(page).getByText('Cancelled').waitFor();
  await page.goto(`${server.url}/#/alerts`);
  const row = page.getByRole('row').filter({ hasText: run }).first();
  await row.waitFor();
  const code = 'DESTRUCTIVE_SIGNAL';
  await row.getByRole('link', { name: code, exact: true }).click();
  await page.waitForURL(new RegExp(`code=${code}`));
  await row.getByRole('link', { name: run }).waitFor();
  await page.getByRole('link', { name: 'Show all' }).click();
  await row.getByRole('link', { name: `About ${code}` }).click();
  await page.getByRole('heading', { name: code, level: 1 }).waitFor();
  await page.getByRole('heading', { name: 'What to do' }).waitFor();
  await page.goBack();
  await row.getByRole('link', { name: run }).click();
  await page.getByRole('heading', { name: 'booking' }).waitFor();
  calm(page);
  await page.done();
});

test('a token is made, refused, rotated and revoked; its secret opens a session until then', async () => {
  const page = await open(server, '#/tokens', { actor: 'ada' });
  await page.getByRole('button', { name: 'New token' }).click();
  await page.getByLabel('Name of the holder').fill(' ');
  await button(page, 'Create').click();
  await refused(page, 'REQUEST_INVALID', 'visible characters are needed');
  await page.getByLabel('Name of the holder').fill('nightly');
  await page.getByRole('checkbox', { name: 'operator' }).check();
  await button(page, 'Create').click();
  const secret = page.getByRole('dialog').locator('code');
  await secret.getByText(/^swt_/).waitFor();
  const first = await secret.textContent();
  // It is not shown again: neither a key nor a click beside it takes it away.
  for (let i = 0; i < 3; i++) await page.keyboard.press('Escape');
  await page.mouse.click(5, 5);
  assert.equal(await button(page, 'Close').count(), 0);
  assert.equal(await secret.textContent(), first);
  await button(page, 'I have copied the token').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const row = page.getByRole('row').filter({ hasText: 'nightly' });
  await row.getByText('valid').waitFor();
  await row.getByRole('button', { name: 'Rotate' }).click();
  await button(page, 'Rotate').click();
  await secret.getByText(/^swt_/).waitFor();
  assert.notEqual(await secret.textContent(), first);
  await button(page, 'I have copied the token').click();
  await row.getByRole('button', { name: 'Revoke' }).click();
  await page.getByLabel('Reason').fill('the laptop is lost');
  await button(page, 'Revoke').click();
  await row.getByText('revoked').waitFor();
  assert.equal(await row.getByRole('button').count(), 0);
  await page.goto(`${server.url}/#/audit?target=${await row.locator('.mono').first().textContent()}`);
  await page.getByText('the laptop is lost').waitFor();
  calm(page);
  await page.done();
});

test('a held step is skipped, and the run goes on without it', async () => {
  const run = await server.run({ text: FAILS_ONCE(join(server.folder, 'nowhere')) });
  const page = await open(server, `#/runs/${run}?step=deliver`);
  await page.getByTestId('cause').getByText('the parcel is not there').first().waitFor({ timeout: 20_000 });
  await page.getByTestId('step').getByRole('button', { name: 'Skip' }).click();
  await page.getByLabel('Reason, which the log keeps').fill('the customer has come to fetch it');
  await button(page, 'Skip the step').click();
  await page.locator('[data-step=deliver][data-word=SKIPPED]').waitFor();
  await state(page).getByText('COMPLETED').waitFor({ timeout: 20_000 });
  // A step that has ended cannot be skipped: the menu says why.
  await page.getByRole('button', { name: 'More' }).click();
  assert.equal(await page.getByRole('menuitem', { name: /Skip step/ }).getAttribute('aria-disabled'), 'true');
  calm(page);
  await page.done();
});

test('a signal changes the parameters of a run; one that is refused shows its code, which leads to its page', async () => {
  const run = await server.run({ name: 'waits-for-money' }, { amount: 1 });
  const page = await open(server, `#/runs/${run}`);
  await page.getByTestId('waits').waitFor();
  const signal = async () => {
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('menuitem', { name: 'Send a signal' }).click();
  };
  await signal();
  await page.getByLabel('Payload, as JSON').fill('{ "params": { "amount": 25 } }');
  // Without a reason nothing is sent, and the field says that it is needed.
  const reason = page.getByLabel('Reason, which the log keeps (needed)');
  const sent = [];
  page.on('request', (it) => it.url().endsWith('/signals') && sent.push(it.url()));
  for (const nothing of ['', '  ']) {
    await reason.fill(nothing);
    await button(page, 'Send a signal').click();
    assert.ok(await reason.evaluate((it) => !it.validity.valid && document.activeElement === it));
  }
  assert.deepEqual(sent, []);
  await reason.fill('the invoice was wrong');
  await button(page, 'Send a signal').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await server.until(run, (it) => it.ext.params.amount === 25);
  await signal();
  await page.getByRole('dialog').getByRole('combobox').selectOption('INJECT_OVERRIDE');
  assert.match(await page.getByLabel('Payload, as JSON').inputValue(), /"override"/);
  await page.getByLabel('Payload, as JSON').fill('{ "stepId": "nothing", "override": { "a": 1 } }');
  await page.getByLabel('Reason, which the log keeps').fill('a test');
  await button(page, 'Send a signal').click();
  const alert = page.getByRole('dialog').getByRole('alert');
  await alert.waitFor();
  const code = await alert.getByRole('link').textContent();
  await alert.getByRole('link').click();
  // The page of the code is shown, and no dialog hides it.
  await page.getByRole('heading', { name: code, level: 1 }).waitFor();
  assert.equal(await page.getByRole('dialog').count(), 0);
  calm(page);
  await page.done();
});

test('a run is repeated with edited input, also one whose text is not registered', async () => {
  const page = await open(server, '#/runs');
  for (const definition of [{ name: 'greets' }, { text: GREETS.replace('name: greets', 'name: greets-once') }]) {
    const run = await server.run(definition, { greeting: 'Good morning', times: 3 });
    await server.until(run, (it) => it.status === 'COMPLETED');
    await page.goto(`${server.url}/#/runs/${run}`);
    await page.getByRole('heading', { level: 1 }).waitFor();
    await page.getByRole('button', { name: 'More' }).click();
    await page.getByRole('menuitem', { name: 'Rerun with edited input' }).click();
    assert.equal(await page.getByLabel('greeting').inputValue(), 'Good morning');
    await page.getByLabel('greeting').fill('Good evening');
    await page.getByLabel('loud').check();
    await button(page, 'Start the run').click();
    await page.waitForURL((it) => /#\/runs\/run_/.test(it.href) && !it.href.includes(run));
    const again = /run_[\w-]+/.exec(page.url())[0];
    const view = await server.until(again, (it) => it.status === 'COMPLETED');
    assert.deepEqual([view.ext.params.greeting, view.ext.params.times, view.ext.params.loud], ['Good evening', 3, true]);
    // The new run says which one it repeats.
    assert.equal(view.ext.repeats, run);
    await page.getByTestId('facts').getByRole('link', { name: run }).waitFor();
  }
  calm(page);
  await page.done();
});

test('an event that a step waits for is sent from its wait, and one with a wrong payload is refused in place', async () => {
  const run = await server.run({ name: 'waits-for-money' });
  const page = await open(server, `#/runs/${run}`);
  await page.getByTestId('waits').getByRole('button', { name: 'Send the event' }).click();
  assert.equal(await page.getByLabel('Type').inputValue(), 'payment.done');
  await page.getByLabel('Payload, as JSON').fill('amount: 25');
  await page.getByRole('dialog').getByText('The text is not JSON').waitFor();
  assert.ok(await button(page, 'Send an event').isDisabled());
  await page.getByLabel('Payload, as JSON').fill('{ "amount": 25 }');
  await button(page, 'Send an event').click();
  await state(page).getByText('COMPLETED').waitFor({ timeout: 20_000 });
  calm(page);
  await page.done();
});

test('manual work is completed from the inbox, with its output', async () => {
  const run = await server.run({ text: SAGA });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const page = await open(server, '#/inbox', { actor: 'bob' });
  await page.locator('ul').getByRole('button').filter({ hasText: 'wait-for-guest' }).first().click();
  await page.getByRole('link', { name: run }).waitFor();
  await page.getByRole('button', { name: 'Answer' }).click();
  // The person is told what to do, and gives fields with types; JSON is possible too.
  await page.getByTestId('what-to-do').waitFor();
  await page.getByTestId('asked').getByText('guest:arrive').waitFor();
  await page.getByLabel('Name of field 1').fill('room');
  await page.getByLabel('Type of field 1').selectOption('number');
  await page.getByLabel('Value of field 1').fill('twelve');
  await page.getByText('This is not a number.').waitFor();
  assert.ok(await button(page, 'It is done').isDisabled());
  await page.getByLabel('Value of field 1').fill('12');
  await page.getByLabel('Name of field 2').fill('late');
  await page.getByLabel('Type of field 2').selectOption('yes or no');
  await page.getByLabel('Value of field 2').selectOption('yes');
  await page.getByRole('button', { name: 'as JSON' }).click();
  assert.deepEqual(JSON.parse(await page.getByLabel('Output as JSON').inputValue()), { room: 12, late: true });
  await page.getByLabel('Output as JSON').fill('{ "room": ');
  assert.ok(await button(page, 'It is done').isDisabled());
  await page.getByLabel('Output as JSON').fill('{ "room": 13, "late": true }');
  await page.getByRole('button', { name: 'as fields' }).click();
  assert.equal(await page.getByLabel('Value of field 1').inputValue(), '13');
  await page.getByLabel('Evidence').fill('photo-1, photo-2');
  await button(page, 'It is done').click();
  const view = await server.until(run, (it) => it.status === 'COMPLETED');
  const answer = view.ext.answers.find((it) => it.stepId === 'wait-for-guest');
  assert.deepEqual([answer.by, answer.evidenceRefs], ['bob', ['photo-1', 'photo-2']]);
  assert.deepEqual(view.ext.steps.find((it) => it.stepId === 'wait-for-guest').output, { room: 13, late: true });
  calm(page);
  await page.done();
});

test('a revision is deprecated and taken back; its definition is approved by a person before it starts', async () => {
  await server.register(APPROVAL, 'pay-out.yaml');
  const page = await open(server, '#/definitions/pay-out');
  await page.getByRole('button', { name: 'Deprecate' }).click();
  // It is said first what stops, and asked why.
  await page.getByRole('dialog').getByText('not by schedules, webhooks, sources').waitFor();
  await page.getByLabel('Reason').fill('it pays twice');
  await button(page, 'Deprecate').click();
  await page.getByRole('button', { name: 'Take the deprecation back' }).waitFor();
  await page.getByText('it pays twice').waitFor();
  assert.ok(await page.getByRole('button', { name: 'Start a run' }).isDisabled());
  await page.getByRole('button', { name: 'Take the deprecation back' }).click();
  await button(page, 'Take it back').click();
  await page.getByRole('button', { name: 'Deprecate' }).waitFor();
  calm(page);
  await page.done();
});

test('a stalled run says what it reads, and goes on when the variable is set', async () => {
  const gate = `apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: gate }
executor: { profile: local }
workflow:
  - step: build
    tool: { kind: noop }
    next: { arcs: [{ step: deploy }] }
  - step: deploy
    spec: { policy: { admit: { rules: [{ when: "{{ ctx.approved | default(false) }}", then: { allow: true } }, { else: { then: { allow: false } } }] } } }
    tool: { kind: noop }
`;
  const run = await server.run({ text: gate });
  const page = await open(server, `#/runs/${run}`);
  const waits = page.getByTestId('waits');
  await waits.getByText('its rules read ctx.approved').waitFor();
  // The graph marks the step as it marks other waits.
  await page.locator('[data-step=deploy].tone-wait [data-waits][title="not admitted yet"]').waitFor();
  await waits.getByRole('button', { name: 'Set variables' }).click();
  assert.match(await page.getByLabel('Variables, as JSON').inputValue(), /"approved": null/);
  await page.getByLabel('Variables, as JSON').fill('{ "approved": true }');
  await button(page, 'Set variables').click();
  await state(page).getByText('success').waitFor();
  calm(page);
  await page.done();
});

test('with the keyboard alone a failed step is found, understood and retried', async () => {
  const run = await server.run({ text: FAILS_ONCE(server.folder) });
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'operator'));
  const page = await open(server, '#/runs?plan=fails-once');
  await page.getByRole('row').nth(1).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByTestId('cause').getByRole('button', { name: 'Retry the step' }).waitFor();
  writeFileSync(join(server.folder, 'parcel'), '');
  await page.keyboard.press('r');
  await page.getByRole('dialog').waitFor();
  // The first field has the focus, and Enter sends the form.
  await page.keyboard.type('the parcel is there now');
  await page.keyboard.press('Enter');
  await state(page).getByText('COMPLETED').waitFor({ timeout: 20_000 });
  await page.keyboard.press('3');
  await page.locator('[data-list]').getByText('SignalAccepted').first().waitFor();
  calm(page);
  await page.done();
});

test('an approver answers and may do nothing else; a token that is revoked ends the session', async () => {
  const own = new Served(['--access', 'tokens']);
  await own.start();
  const cli = (...args) => execFileSync(own.bin, [...args, '--store', join(own.folder, 'stepwell.db')], { cwd: own.folder }).toString();
  const token = (name, role) => /swt_\S+/.exec(cli('token', 'create', name, '--role', role))[0];
  const [approver, operator, admin] = [token('anna', 'approver'), token('otto', 'operator'), token('ada', 'admin')];
  const run = (await own.ask('POST', '/api/v1/runs', { definition: { text: APPROVAL } }, { authorization: `Bearer ${operator}` })).runId;
  const page = await open(own, `#/runs/${run}`);
  const signIn = async (secret) => {
    await page.getByLabel('Token').fill(secret);
    await page.getByRole('button', { name: 'Sign in' }).click();
  };
  await signIn(approver);
  await page.getByRole('heading', { name: 'pay-out' }).waitFor();
  await page.waitForFunction(() => document.querySelector('button[title*="role operator"]'));
  assert.ok(await page.getByRole('button', { name: 'Pause' }).isDisabled());
  for (const name of ['Tokens', 'Audit log', 'Webhooks']) assert.equal(await page.getByRole('link', { name }).count(), 0);
  await page.keyboard.press('a');
  await page.getByRole('dialog').getByRole('button', { name: 'Approve', exact: true }).click();
  await state(page).getByText('Succeeded').waitFor();
  await page.goto(`${own.url}/#/tokens`);
  await page.getByText('Your roles do not show tokens').waitFor();
  const all = await own.ask('GET', '/api/v1/tokens', undefined, { authorization: `Bearer ${admin}` });
  await own.ask('DELETE', `/api/v1/tokens/${all.tokens.find((it) => it.name === 'anna').id}`, undefined, { authorization: `Bearer ${admin}` });
  await page.goto(`${own.url}/#/runs`);
  await page.getByLabel('Token').waitFor({ timeout: 20_000 });
  await signIn(operator);
  await page.getByRole('link', { name: 'pay-out' }).first().waitFor();
  await page.done();
  await own.stop();
});

test('a page without a stream says when the server is away, and goes on by itself', async () => {
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const page = await open(own, '#/schedules');
  await page.getByText('There is no schedule').waitFor();
  // Nothing tells of schedules: the page says when it has asked, and not that it is live.
  await page.getByRole('status').getByText('Updated').waitFor();
  await page.locator('aside').getByText(/Updated (now|\d+(\.\d)? s ago)/).waitFor();
  await own.kill();
  await page.getByText('The server cannot be reached.').first().waitFor();
  await own.start();
  await page.getByRole('status').getByText('Updated').waitFor();
  await own.ask('PUT', '/api/v1/schedules/late', { cron: '0 2 * * *', definition: 'greets' });
  await page.getByRole('row').filter({ hasText: 'late' }).waitFor();
  await page.done();
  await own.stop();
});
