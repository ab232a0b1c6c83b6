// What asks for a person's attention is told on every page; dead letters are delivered again many at a time.
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { APPROVAL, button, calm, closeBrowser, GREETS, open, SAGA, Served } from './support.mjs';

after(closeBrowser);

/** A sink that takes nothing until it is told to. */
async function sink() {
  const taken = [];
  const state = { status: 400, taken };
  const server = createServer((request, response) => {
    request.resume();
    if (state.status < 300) taken.push(request.headers['stepwell-delivery'] ?? '');
    response.writeHead(state.status).end();
  });
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  return Object.assign(state, { url: `http://127.0.0.1:${server.address().port}/`, close: () => (server.closeAllConnections(), server.close()) });
}
/** As if everything in the outbox had been tried for hours: the next failure is the last. Waits until it is. */
async function giveUp(own) {
  const late = 'import sqlite3,sys; it=sqlite3.connect(sys.argv[1],timeout=10); it.execute("UPDATE outbox SET attempts=24, due_at=0"); it.commit(); print(it.execute("SELECT count(*) FROM outbox").fetchone()[0])';
  for (const end = Date.now() + 60_000; Date.now() < end; ) {
    if (execFileSync('python3', ['-c', late, join(own.folder, 'stepwell.db')]).toString().trim() === '0') return;
    await new Promise((done) => setTimeout(done, 500));
  }
  throw new Error('the outbox did not become empty');
}
const asks = (page, what) => page.getByTestId(`asks-${what}`);
const letters = (page) => page.getByRole('region', { name: 'Dead letters' }).locator('[data-letter]');

test('numbers beside the pages tell of tasks, dead letters and urgent alerts, follow what happens, and ask the server seldom', async () => {
  const own = await new Served().start();
  const hook = await sink();
  await own.register(APPROVAL, 'pay-out.yaml');
  await own.register(GREETS, 'greets.yaml');
  const page = await open(own, '#/runs', { actor: 'bob' });
  const asked = [];
  page.on('request', (request) => request.url().includes('/attention') && asked.push(Date.now()));
  await page.getByRole('link', { name: 'Alerts' }).waitFor();
  for (const it of ['inbox', 'outbox', 'alerts']) assert.equal(await asks(page, it).count(), 0);
  // A task for everybody but the one who has started the run.
  const { runId: run } = await own.ask('POST', '/api/v1/runs', { definition: { name: 'pay-out' } }, { 'stepwell-actor': 'ada' });
  await asks(page, 'inbox').getByText('1', { exact: true }).waitFor();
  assert.equal(await page.getByRole('link', { name: 'Inbox 1 task for you' }).count(), 1);
  const ada = await open(own, '#/runs', { actor: 'ada' });
  await ada.getByText('pay-out').first().waitFor();
  await ada.waitForTimeout(500);
  assert.equal(await asks(ada, 'inbox').count(), 0, 'the maker may not answer');
  await ada.done();
  // Deliveries that are refused are dead letters, with alerts that are urgent.
  await own.ask('PUT', '/api/v1/sinks/warehouse', { address: `webhook:${hook.url}` });
  const greets = await own.run({ name: 'greets' });
  await own.until(greets, (it) => it.status === 'COMPLETED');
  await giveUp(own);
  await asks(page, 'outbox').waitFor();
  await asks(page, 'alerts').waitFor();
  await page.waitForFunction(() => /^\(\d+\) Runs · Stepwell$/.test(document.title));
  // Who has looked at the alerts is not told of them again; the others are still there.
  await page.getByRole('link', { name: 'Alerts' }).click();
  await page.getByText('EVENT_BUS_DELIVERY_FAILED').first().waitFor();
  await asks(page, 'alerts').waitFor({ state: 'detached' });
  await page.getByRole('button', { name: /^P1/ }).click();
  await page.waitForURL(/priority=P1/);
  await page.getByRole('button', { name: /^P3/ }).click();
  await page.getByText('No alert has the urgency P3').waitFor();
  // An answer takes the task away at once.
  await page.goto(`${own.url}/#/inbox?run=${run}&step=approve-payment`);
  await page.getByRole('button', { name: 'Answer' }).click();
  await button(page, 'Approve').click();
  await asks(page, 'inbox').waitFor({ state: 'detached' });
  // Many runs change; the server is asked every few seconds, not for each of them.
  asked.length = 0;
  const began = Date.now();
  for (let i = 0; i < 20; i++) await own.run({ name: 'greets' });
  await page.waitForTimeout(Math.max(0, 6500 - (Date.now() - began)));
  const most = Math.ceil((Date.now() - began) / 3000) + 1;
  assert.ok(asked.length >= 1 && asked.length <= most, `${asked.length} questions, ${most} at most`);
  calm(page);
  await page.done();
  hook.close();
  await own.stop();
});

test('dead letters are shown newest first; some, or all of a sink, are delivered again after a preview', async () => {
  const own = await new Served().start();
  const [hook, other] = [await sink(), await sink()];
  await own.register(GREETS, 'greets.yaml');
  await own.ask('PUT', '/api/v1/sinks/warehouse', { address: `webhook:${hook.url}` });
  await own.ask('PUT', '/api/v1/sinks/mail', { address: `webhook:${other.url}` });
  const runs = [];
  for (let i = 0; i < 4; i++) {
    runs.push(await own.run({ name: 'greets' }));
    await own.until(runs.at(-1), (it) => it.status === 'COMPLETED');
  }
  const kept = async (sink) => (await own.ask('GET', `/api/v1/dead-letters?limit=1000&sink=${sink}`)).length;
  await giveUp(own);
  const page = await open(own, '#/outbox');
  await letters(page).first().waitFor();
  const numbers = await letters(page).evaluateAll((rows) => rows.map((it) => Number(it.dataset.letter)));
  assert.deepEqual(numbers, [...numbers].sort((a, b) => b - a));
  // Two of them.
  hook.status = other.status = 204;
  const chosen = numbers.slice(0, 2);
  for (const no of chosen) await page.getByLabel(`Choose the dead letter ${no}`, { exact: true }).click();
  await page.getByRole('button', { name: 'Deliver 2 again' }).click();
  await page.getByRole('dialog').getByText('They go back into the outbox').waitFor();
  await button(page, 'Deliver again').click();
  await page.getByText('2 deliveries are tried again.').waitFor();
  for (const no of chosen) await page.locator(`[data-letter="${no}"]`).waitFor({ state: 'detached' });
  // All of one sink, and nothing of the other.
  const [all, mails] = [await kept('warehouse'), await kept('mail')];
  assert.ok(all > 0 && mails > 0, `${all} ${mails}`);
  await page.getByRole('button', { name: 'All of warehouse again' }).click();
  await page.getByRole('dialog').getByText(new RegExp(`^${all} deliver(y|ies) to warehouse, of \\d runs?\\.`)).waitFor();
  await button(page, 'Not now').click();
  assert.equal(await kept('warehouse'), all, 'a preview changes nothing');
  await page.getByRole('button', { name: 'All of warehouse again' }).click();
  await button(page, 'Deliver again').click();
  await page.getByText(`${all} deliver`).first().waitFor();
  await page.waitForFunction(() => ![...document.querySelectorAll('[data-letter]')].some((it) => it.textContent.includes('warehouse')));
  assert.deepEqual([await kept('warehouse'), await kept('mail')], [0, mails]);
  // Its event is one click away, and the filter is in the address.
  await page.goto(`${own.url}/#/outbox?sink=mail`);
  await letters(page).first().locator('[data-label=Event] a').click();
  await page.getByRole('tab', { name: 'Events' }).waitFor();
  assert.match(page.url(), /tab=events&event=\d+/);
  calm(page);
  await page.done();
  hook.close();
  other.close();
  await own.stop();
});

test('alerts are one row for each code, with how many, in how many runs and since when, which leads to all of the code', async () => {
  const own = await new Served(['--parallel', '8']).start();
  const hook = await sink();
  await own.register(GREETS, 'greets.yaml');
  await own.ask('PUT', '/api/v1/sinks/warehouse', { address: `webhook:${hook.url}` });
  await own.until(await own.run({ name: 'greets' }), (it) => it.status === 'COMPLETED');
  await giveUp(own);
  await own.ask('DELETE', '/api/v1/sinks/warehouse');
  // A code that comes often does not hide the other, which is older.
  const runs = await Promise.all(Array.from({ length: 30 }, () => own.run({ text: SAGA })));
  for (const run of runs) await own.ask('POST', `/api/v1/runs/${run}/signals`, { signalType: 'EMERGENCY_STOP', reason: 'a test' });
  const page = await open(own, '#/alerts', { height: 700 });
  const row = (code) => page.getByRole('row').filter({ has: page.getByRole('link', { name: code, exact: true }) });
  await row('DESTRUCTIVE_SIGNAL').getByText('30 times').waitFor();
  assert.match(await row('DESTRUCTIVE_SIGNAL').getByTestId('times').innerText(), /^30 times\s+in 30 runs, since \d\d:\d\d:\d\d$/);
  assert.equal(await page.getByRole('row').count(), 3, 'the head and two codes');
  const [first, second] = await page.locator('tbody tr').all();
  await first.getByText('DESTRUCTIVE_SIGNAL').waitFor();
  await second.getByText('EVENT_BUS_DELIVERY_FAILED').waitFor();
  // The newest run is there; the code leads to all of them, and Back to the codes.
  const newest = (await own.ask('GET', '/api/v1/alerts?limit=1'))[0].runId;
  await first.getByRole('link', { name: newest }).waitFor();
  await first.getByRole('link', { name: 'DESTRUCTIVE_SIGNAL', exact: true }).click();
  await page.waitForURL(/alerts\?code=DESTRUCTIVE_SIGNAL$/);
  await page.waitForFunction(() => document.querySelectorAll('tbody tr').length === 30);
  for (const run of runs) assert.equal(await page.getByRole('link', { name: run }).count(), 1);
  await page.getByRole('button', { name: /^P3/ }).click();
  await page.getByText('No alert has the urgency P3').waitFor();
  await page.goBack();
  await row('EVENT_BUS_DELIVERY_FAILED').waitFor();
  // More than a page of one code: the older ones are a click away.
  const more = 'import sqlite3,sys; it=sqlite3.connect(sys.argv[1],timeout=10); of="run_no, code, priority, message, at"; [it.execute(f"INSERT INTO alerts ({of}) SELECT {of} FROM alerts WHERE code = ? GROUP BY run_no", ("DESTRUCTIVE_SIGNAL",)) for _ in range(10)]; it.commit()';
  execFileSync('python3', ['-c', more, join(own.folder, 'stepwell.db')]);
  await row('DESTRUCTIVE_SIGNAL').getByText('330 times').waitFor();
  await row('DESTRUCTIVE_SIGNAL').getByText('in 30 runs').waitFor();
  await row('DESTRUCTIVE_SIGNAL').getByRole('link', { name: '330 times' }).click();
  await page.getByRole('button', { name: 'All 200+' }).waitFor();
  await page.getByRole('button', { name: 'Show older alerts' }).click();
  await page.getByRole('button', { name: 'All 330', exact: true }).waitFor();
  assert.equal(await page.locator('tbody tr').count(), 330);
  assert.equal(await page.getByRole('button', { name: 'Show older alerts' }).count(), 0);
  calm(page);
  await page.done();
  hook.close();
  await own.stop();
});
