// What operators do at three in the morning: sources of brokers, runs that are held up, the same action for many runs, evidence.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, test } from 'node:test';
import { Redis } from './redis.mjs';
import { APPROVAL, button, calm, closeBrowser, FAILS_ONCE, GREETS, open, refused, SAGA, Served } from './support.mjs';

after(closeBrowser);

test('a source is made and refused, says why it is not connected, and is paused, changed and deleted', async () => {
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const page = await open(own, '#/sources', { actor: 'ada' });
  await page.getByText('There is no source').waitFor();
  await page.getByRole('button', { name: 'New source' }).click();
  await page.getByLabel('Name', { exact: true }).fill('orders');
  await page.getByLabel('Definition').fill('greets');
  await page.getByLabel('Address of the broker').fill('nats://user:hunter2@127.0.0.1:9/ORDERS');
  await button(page, 'Save').click();
  await refused(page, 'SOURCE_INVALID', 'auth=NAME');
  assert.doesNotMatch(await page.getByRole('dialog').getByRole('alert').textContent(), /hunter2/);
  await page.getByLabel('Address of the broker').fill('redis://127.0.0.1:9/?stream=orders');
  await button(page, 'Save').click();
  await page.waitForURL(/name=orders/);
  const row = page.getByRole('row').filter({ hasText: 'orders' });
  await row.getByText('not connected').waitFor();
  // The reason is beside, in full.
  await page.getByRole('complementary', { name: 'Source' }).getByText(/refused/i).first().waitFor();
  await row.getByRole('button', { name: 'Pause' }).click();
  await row.getByText('paused').waitFor();
  await row.getByRole('button', { name: 'Resume' }).click();
  // The address was kept with the part that is not shown: without `stream` it could not be used.
  await row.getByText('not connected').waitFor();
  await page.getByRole('button', { name: 'Edit' }).click();
  await page.getByLabel('Each message').selectOption('event');
  await page.getByLabel('Type of the event').fill('order.placed');
  await page.getByLabel('Where the message has the key').fill('/order/id');
  await button(page, 'Save').click();
  await row.getByText('order.placed').waitFor();
  const kept = await own.ask('GET', '/api/v1/sources/orders');
  assert.deepEqual([kept.target.event, kept.changedBy, kept.enabled], [{ type: 'order.placed', keyFrom: '/order/id' }, 'ada', true]);
  await page.getByRole('button', { name: 'Delete' }).click();
  await button(page, 'Delete').click();
  await page.getByText('There is no source').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('messages of a real broker start runs; the page shows what is accepted, repeated and rejected, and that the broker is away', { skip: !Redis.isThere() && 'SKIPPED: redis-server is not installed' }, async () => {
  const redis = await new Redis().start();
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const address = `redis://127.0.0.1:${redis.port}/?stream=orders`;
  await own.ask('PUT', '/api/v1/sources/orders', { address, target: { start: { definition: 'greets' } }, maxBody: 100 });
  const page = await open(own, '#/sources?name=orders');
  const row = page.getByRole('row').filter({ hasText: 'orders' });
  await row.getByText('connected', { exact: true }).waitFor();
  for (const [id, data] of [['m1', '{"order":1}'], ['m1', '{"order":1}'], ['large', 'x'.repeat(200)], ['m2', 'text']]) redis.ask('XADD', 'orders', '*', 'id', id, 'data', data);
  const fact = (name) => page.getByRole('complementary', { name: 'Source' }).locator(`dt:text-is("${name}") + dd`);
  await fact('Accepted').getByText('2', { exact: true }).waitFor();
  await fact('Repeated').getByText('1', { exact: true }).waitFor();
  await fact('Rejected').getByText('1').waitFor();
  await page.getByRole('complementary', { name: 'Source' }).getByRole('link', { name: 'alerts' }).click();
  await page.getByText('SOURCE_MESSAGE_REJECTED').first().waitFor();
  await page.getByText('orders:dead').waitFor();
  await page.goto(`${own.url}/#/sources?name=orders`);
  await row.getByText('connected', { exact: true }).waitFor();
  await redis.stop();
  await row.getByText('not connected').waitFor();
  await redis.start();
  await row.getByText('connected', { exact: true }).waitFor({ timeout: 40_000 });
  calm(page);
  await page.done();
  await redis.stop();
  await own.stop();
});

test('runs that no worker serves, whose step has failed, or that wait for a slot are marked in the list, and found with one click', async () => {
  const own = await new Served([], undefined, { config: '[limits]\nruns = 3\n' }).start();
  const failed = await own.run({ text: FAILS_ONCE(own.folder) });
  const ship = await own.run({ text: 'workflowType: parcels\nworkflowVersion: 1\nsteps:\n  - {stepType: SHIP}\n' });
  const waits = await own.run({ text: SAGA });
  await own.until(waits, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const queued = await own.run({ text: GREETS });
  const page = await open(own, '#/runs');
  const row = (run) => page.getByRole('row').filter({ has: page.getByLabel(`Select ${run}`) });
  await row(ship).getByTestId('held').getByText('no worker').waitFor();
  await row(queued).getByTestId('held').getByText('no slot').waitFor();
  await row(failed).getByTestId('held').getByText('step failed').waitFor();
  assert.equal(await row(waits).getByTestId('held').count(), 0);
  await page.getByRole('button', { name: 'Held up 3' }).click();
  await page.waitForURL(/held=1/);
  await page.getByTestId('held-reasons').getByText('Nobody serves').waitFor();
  await page.getByTestId('held-reasons').getByText('free slot').waitFor();
  await row(waits).waitFor({ state: 'detached' });
  await page.getByTestId('held-reasons').getByText('deliver', { exact: true }).waitFor();
  assert.equal(await page.getByRole('row').count(), 4, 'the head and three runs');
  // The step is skipped: its run goes on.
  await own.ask('POST', `/api/v1/runs/${failed}/signals`, { signalType: 'SKIP_STEP', payload: { stepId: 'deliver' }, reason: 'a test' });
  await own.until(failed, (it) => it.status === 'COMPLETED');
  await row(failed).waitFor({ state: 'detached' });
  // A slot is free: the run goes on, and leaves the list by itself.
  await own.ask('POST', `/api/v1/runs/${waits}/cancel`, {});
  await own.until(queued, (it) => it.status === 'COMPLETED');
  await row(queued).waitFor({ state: 'detached' });
  // A worker asks for the work: it is served from now on.
  const work = (await own.ask('GET', '/api/v1/runs/held')).runs[0].steps[0];
  await own.ask('POST', '/api/v1/worker/poll', { protocol: 1, workerId: 'w', max: 0, waitSeconds: 0, serves: [{ queue: work.queue, operation: work.operation }] });
  await page.getByText('No run fits these filters').waitFor();
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  await row(ship).waitFor();
  assert.equal(await page.getByTestId('held').count(), 0);
  calm(page);
  await page.done();
  await own.stop();
});

test('a preview says which runs would refuse and why, before anything happens', async () => {
  const own = await new Served().start();
  const bad = GREETS.replace('echo {{ workload.greeting }}', 'echo no >&2; exit 2');
  const runs = [await own.run({ text: bad }), await own.run({ text: GREETS }), await own.run({ text: SAGA })];
  await own.until(runs[0], (it) => it.status === 'FAILED');
  await own.until(runs[1], (it) => it.status === 'COMPLETED');
  await own.until(runs[2], (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const page = await open(own, '#/runs');
  for (const run of runs) await page.getByLabel(`Select ${run}`).check();
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  const says = page.getByTestId('bulk-says');
  await says.getByText('Nothing has happened yet.').waitFor();
  assert.match(await says.textContent(), /1 run will be cancelled, and 2 would refuse/);
  const refusals = page.getByTestId('bulk-refusal');
  assert.equal(await refusals.count(), 2);
  assert.match(await refusals.first().textContent(), /The run has ended.*RUN_TERMINAL/);
  // What stays done, or is undone, is said before it happens.
  assert.match(await page.getByTestId('bulk-undo').innerText(), /^Stays done although it has an undo: /);
  assert.equal((await own.ask('GET', `/api/v1/runs/${runs[2]}`)).status, 'RUNNING');
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Retry', exact: true }).click();
  assert.match(await says.textContent(), /2 runs will be repeated as new runs, and 1 would refuse/);
  await button(page, 'Retry 2 runs').click();
  // The one that refused is still there to be read; the others are new runs.
  await says.getByText('are repeated as new runs').waitFor();
  assert.match(await says.textContent(), /2 runs are repeated as new runs; 1 refused/);
  await page.getByRole('dialog').getByRole('button', { name: 'Close' }).last().click();
  await page.waitForFunction(() => document.querySelectorAll('[role=rowgroup] [role=row]').length >= 5);
  calm(page);
  await page.done();
  await own.stop();
});

test('the evidence of a run shows who decided what, is checked, and is downloaded', async () => {
  const own = await new Served().start();
  await own.register(APPROVAL, 'pay-out.yaml');
  const run = (await own.ask('POST', '/api/v1/runs', { definition: { name: 'pay-out' } }, { 'stepwell-actor': 'ada' })).runId;
  await own.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  await own.ask('POST', `/api/v1/runs/${run}/steps/approve-payment/complete`, { outcome: 'succeeded', notes: 'the receipt is right', evidenceRefs: ['photo-1'] }, { 'stepwell-actor': 'bob' });
  await own.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(own, `#/runs/${run}`);
  await page.getByRole('tab', { name: 'Evidence' }).click();
  await page.getByTestId('chain').getByText('has checked the hashes').waitFor();
  const answer = page.getByRole('row').filter({ hasText: 'the receipt is right' }).first();
  await answer.getByText('bob').waitFor();
  await answer.getByText('photo-1').waitFor();
  const download = page.waitForEvent('download');
  await page.getByRole('button', { name: 'Download' }).click();
  const document = JSON.parse(readFileSync(await (await download).path(), 'utf8'));
  assert.deepEqual([document.runId, document.findings], [run, []]);
  await page.getByRole('button', { name: 'More' }).click();
  await page.getByRole('menuitem', { name: 'Make the snapshot again' }).click();
  await page.getByText(/The snapshot was made again from all events/).waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('the queue is live, and what no stream tells says when it was read', async () => {
  const own = await new Served([], undefined, { config: '[limits]\nruns = 1\n' }).start();
  const first = await own.run({ text: SAGA });
  const page = await open(own, '#/queue');
  await page.getByText('No run waits').waitFor();
  await page.getByRole('status').getByText('Live').waitFor();
  await page.getByText(/updated (now|\d+(\.\d)? s ago)/).waitFor();
  const queued = await own.run({ text: GREETS });
  await page.getByRole('link', { name: queued }).waitFor({ timeout: 3000 });
  await own.ask('POST', `/api/v1/runs/${first}/cancel`, {});
  await page.getByText('No run waits').waitFor({ timeout: 5000 });
  calm(page);
  await page.done();
  await own.stop();
});
