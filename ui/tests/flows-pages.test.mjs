// Pages beside the page of one run: what is typed is what is sent, long names fit, lists say what the runs say, and names may have
// every letter there is.
import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { calm, closeBrowser, FAILS_ONCE, open, plan, SAGA, Served } from './support.mjs';

let server;
before(async () => {
  server = await new Served(['--parallel', '8']).start();
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const paramsOf = async (page) => (await server.ask('GET', `/api/v1/runs/${/runs\/(run_\w+)/.exec(page.url())[1]}`)).ext.params;
const playbook = (name, more = '', steps = '  - step: only\n    tool: { kind: noop }\n') => `apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: ${name} }\n${more}workflow:\n${steps}`;

test('a start form keeps the lines of a text, sends a text that was emptied, and takes back what was written as JSON', async () => {
  await server.register(playbook('letter', 'workload:\n  long: "line one\\nline two"\n  short: Hello\n  from: Ada\n'), 'letter.yaml');
  const page = await open(server, '#/definitions/letter');
  const started = async () => {
    await page.getByRole('button', { name: 'Start the run' }).click();
    await page.waitForURL(/#\/runs\/run_/);
    return await paramsOf(page);
  };
  const form = async () => {
    await page.goto(`${server.url}/#/definitions/letter`);
    await page.getByRole('button', { name: 'Start a run' }).click();
    await page.getByLabel('long').waitFor();
  };
  await form();
  // A name of a label that comes twice is refused: one of the values would be lost.
  await page.getByText('Labels and start time').click();
  await page.getByLabel('Labels (name=value').fill('team=blue,team=red');
  await page.getByRole('button', { name: 'Start the run' }).click();
  await page.getByRole('dialog').getByRole('alert').getByText('team is there twice. A run has one value for each label').waitFor();
  await page.getByLabel('Labels (name=value').fill('team=blue');
  assert.equal(await page.getByLabel('long').inputValue(), 'line one\nline two');
  await page.getByLabel('long').press('Control+End');
  await page.keyboard.type('!');
  await page.getByLabel('from').fill('');
  // Lines that are pasted into a field of one line stay lines.
  await page.getByLabel('short').evaluate((it) => {
    const data = new DataTransfer();
    data.setData('text/plain', 'Dear\r\nBob');
    it.select();
    it.dispatchEvent(new ClipboardEvent('paste', { clipboardData: data, bubbles: true, cancelable: true }));
  });
  await page.locator('textarea').nth(1).waitFor();
  assert.equal(await page.getByLabel('short').evaluate((it) => it === document.activeElement), true, 'the focus stays');
  const params = await started();
  assert.deepEqual([params.long, params.short, params.from], ['line one\nline two!', 'Dear\nBob', '']);
  await form();
  await page.getByRole('button', { name: 'as JSON' }).click();
  const json = page.getByLabel('Input as JSON');
  await json.fill('{ "short": ');
  assert.equal(await page.getByRole('button', { name: 'as a form' }).isDisabled(), true);
  await json.fill('{ "short": "from JSON", "more": [1] }');
  await page.getByRole('button', { name: 'as a form' }).click();
  assert.equal(await page.getByLabel('short').inputValue(), 'from JSON');
  assert.equal(await page.getByLabel('long').inputValue(), 'line one\nline two');
  await page.getByLabel('from').fill('Eve');
  const second = await started();
  assert.deepEqual([second.long, second.short, second.from, second.more], ['line one\nline two', 'from JSON', 'Eve', [1]]);
  calm(page);
  await page.done();
});

test('a number that is emptied says that the default is used, and one that is none is not sent', async () => {
  await server.register(playbook('numbers', 'workload: { count: 3, ratio: 0.5 }\n'), 'numbers.yaml');
  const page = await open(server, '#/definitions/numbers');
  await page.getByRole('button', { name: 'Start a run' }).click();
  const start = page.getByRole('button', { name: 'Start the run' });
  await page.getByLabel('count').fill('');
  await page.getByText('Empty: the default, 3, is used.').waitFor();
  await page.getByLabel('ratio').press('Control+A');
  await page.keyboard.type('1e400');
  await page.getByText('This is no number that can be used.').waitFor();
  assert.equal(await start.isDisabled(), true);
  await page.getByLabel('ratio').fill('0.25');
  await start.click();
  await page.waitForURL(/#\/runs\/run_/);
  const params = await paramsOf(page);
  assert.deepEqual([params.count, params.ratio], [3, 0.25]);
  calm(page);
  await page.done();
});

test('an address that was cut leads to a page that says so, not to an empty one', async () => {
  const page = await open(server, '#/runs/%E0%A4%A');
  await page.getByText(/There is no run/).waitFor();
  for (const it of ['definitions', 'errors', 'nothing']) {
    await page.goto(`${server.url}/#/${it}/%E0%A4%A`);
    await page.getByText(/[Tt]here is no|No such/).first().waitFor();
    assert.ok(await page.getByRole('link', { name: 'Inbox' }).isVisible());
  }
  calm(page);
  await page.done();
});

test('a row of runs has the name, whatever its version is, and the end of the id, also beside a business key', async () => {
  const own = await new Served().start();
  const version = '2026.11.18-build.4711+sha.0123456789abcdef0123456789abcdef01234567';
  const long = await own.run({ text: plan('nightly-import', '  - { stepId: a, tool: { kind: noop } }\n').replace('planVersion: 1.0.0', `planVersion: "${version}"`) }, {}, { labels: { team: 'blue' } });
  const keyed = await own.run({ text: 'workflowType: onboard\nworkflowVersion: 1\nbizKey: "{{ workload.customer }}"\nsteps:\n  - stepType: KYC\n    waitFor: { event: kyc.done }\n' }, { customer: 'ACME-7' });
  for (const width of [1024, 1280, 1360]) {
    const page = await open(own, '#/runs', { width, height: 800 });
    const row = (run) => page.getByRole('row').filter({ has: page.getByLabel(`Select ${run}`) });
    await row(keyed).getByText('ACME-7').waitFor();
    for (const run of [long, keyed]) {
      await row(run).locator('[data-cell=run]').getByText(`…${run.slice(-12)}`, { exact: true }).waitFor();
      for (const cell of await row(run).locator('[data-cell=run] span, [data-cell=name] a').all()) assert.ok(await cell.evaluate((it) => it.scrollWidth <= it.clientWidth), `${await cell.textContent()} is cut, ${width}`);
      // No cell is over another, and all of them are in the row.
      const boxes = (await row(run).getByRole('cell').evaluateAll((all) => all.map((it) => it.getBoundingClientRect().toJSON()))).filter((it) => it.width);
      boxes.sort((a, b) => a.left - b.left);
      for (let i = 1; i < boxes.length; i++) assert.ok(boxes[i].left >= boxes[i - 1].right, `${width}: ${JSON.stringify(boxes)}`);
      assert.ok(boxes.at(-1).right <= (await row(run).evaluate((it) => it.getBoundingClientRect().right)), `${width}`);
    }
    const drawn = await row(long).locator('[data-cell=name]').evaluate((it) => [...it.children].map((part) => part.getBoundingClientRect().right <= it.getBoundingClientRect().right + 1));
    assert.deepEqual(drawn, [true, true], 'the version is in its column');
    calm(page);
    await page.done();
  }
  await own.stop();
});

test('a run that has stalled is marked in the list, is among those that are held up, and leaves them when it goes on', async () => {
  const rules = '{ rules: [{ when: "{{ ctx.approved | default(false) }}", then: { allow: true } }, { else: { then: { allow: false } } }] }';
  const run = await server.run({ text: playbook('release-gate', 'executor: { profile: local }\n', `  - step: build\n    tool: { kind: noop }\n    next: { arcs: [{ step: deploy }] }\n  - step: deploy\n    spec: { policy: { admit: ${rules} } }\n    tool: { kind: noop }\n`) });
  const page = await open(server, '#/runs');
  const row = page.getByRole('row').filter({ has: page.getByLabel(`Select ${run}`) });
  await row.getByTestId('held').getByText('stalled').waitFor();
  assert.match(await row.getByTestId('held').getAttribute('title'), /its rules read ctx\.approved/);
  await page.getByRole('button', { name: 'Held up 1' }).click();
  await page.getByTestId('held-reasons').getByText('deploy is not admitted: its rules read ctx.approved').waitFor();
  await server.ask('POST', `/api/v1/runs/${run}/ctx`, { ctx: { approved: true } });
  await server.until(run, (it) => it.status === 'COMPLETED');
  await row.waitFor({ state: 'detached' });
  calm(page);
  await page.done();
});

test('the editor keeps the policy of the page, whatever is typed, replaced, pasted or completed', async () => {
  await server.register(playbook('policy'), 'policy.yaml');
  const page = await open(server, '#/definitions?new=1');
  const said = [];
  page.on('console', (it) => /Content Security Policy/.test(it.text()) && said.push(it.text()));
  const text = page.locator('.cm-content').first();
  const press = async (...keys) => {
    for (const it of keys) await page.keyboard.press(it);
  };
  await text.click();
  // Over a selection of many lines, of colours, and of one word.
  await press('Control+A');
  await page.keyboard.type(playbook('typed', 'workload: { greeting: Hello, times: 1 }\n'), { delay: 1 });
  await press('Control+A');
  await page.keyboard.insertText(playbook('typed', 'workload: { greeting: Hello, times: 1 }\n'));
  await page.getByText('can be run').waitFor();
  await press('Control+Home', 'ArrowDown', 'Shift+ArrowDown', 'Shift+ArrowDown', 'Shift+End', 'X');
  assert.match(await text.innerText(), /^apiVersion: noetl.io\/v2\nX\n/);
  await press('Control+Z');
  await page.getByText('can be run').waitFor();
  await press('Control+Home', 'Control+Shift+ArrowRight', 'a', 'Control+Z', 'Control+Z', 'Delete', 'Backspace', 'Enter', 'Control+Z');
  await press('Control+A', 'Control+X', 'Control+V', 'Control+End', 'Enter', 'Tab', 'Shift+Tab');
  await page.keyboard.type('wor');
  await press('Control+Space');
  await page.waitForTimeout(500);
  await press('Escape');
  for (const it of await page.locator('.cm-lint-marker').all()) await it.hover();
  await page.waitForTimeout(500);
  await page.goto(`${server.url}/#/definitions/policy?tab=source`);
  await page.locator('.cm-content').first().waitFor();
  await page.locator('.cm-content').first().click();
  await press('Control+A', 'x');
  await page.getByRole('tab', { name: 'Graph' }).click();
  await page.waitForTimeout(500);
  assert.deepEqual(said, []);
  calm(page);
  await page.done();
});

test('a filter of runs that is chosen is taken back with the way back; what an address has too much or the wrong way round is said', async () => {
  const own = await new Served().start();
  const done = await own.run({ text: playbook('fine') });
  const failed = await own.run({ text: playbook('broken', '', '  - step: only\n    tool: { kind: shell, cmds: ["exit 3"] }\n') });
  await own.until(done, (it) => it.status === 'COMPLETED');
  await own.until(failed, (it) => it.status === 'FAILED');
  const page = await open(own, '#/runs');
  const row = (run) => page.getByLabel(`Select ${run}`);
  const gone = (run) => row(run).waitFor({ state: 'detached' });
  await row(done).waitFor();
  await page.getByLabel('Language').selectOption('playbook');
  await page.getByRole('button', { name: /^failed/ }).click();
  await page.waitForURL(/state=failed/);
  await gone(done);
  await page.goBack();
  await row(done).waitFor();
  assert.match(page.url(), /language=playbook$/);
  await page.goBack();
  await page.waitForURL(/#\/runs$/);
  assert.equal(await page.getByLabel('Language').inputValue(), '');
  // What is typed is one entry, and the field follows the way back.
  await page.getByLabel('Search runs').fill('broken');
  await page.waitForURL(/text=broken/);
  await gone(done);
  await page.getByRole('button', { name: 'Clear', exact: true }).click();
  await row(done).waitFor();
  await page.goBack();
  await gone(done);
  assert.equal(await page.getByLabel('Search runs').inputValue(), 'broken');
  await page.goto(`${own.url}/#/runs?definition=fine&createdFrom=2026-01-02T00:00:00Z&createdUntil=2026-01-01T00:00:00Z`);
  await page.getByTestId('unknown-filters').getByText('definition').waitFor();
  await page.getByRole('button', { name: 'Remove it' }).click();
  await page.getByTestId('unknown-filters').waitFor({ state: 'detached' });
  await page.getByText('“Started after” is later than “Started before”').waitFor();
  assert.equal(await page.getByText('createdFrom').count(), 0);
  await page.getByRole('button', { name: 'Exchange them' }).click();
  await page.getByText('No run fits these filters').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('a preview of many runs shows first what is hit, then what refuses; a full queue says who has the slots', async () => {
  const own = await new Served([], undefined, { config: '[limits]\nruns = 1\n' }).start();
  const ended = [];
  for (let i = 0; i < 12; i++) ended.push(await own.run({ text: playbook('fine') }));
  for (const run of ended) await own.until(run, (it) => it.status === 'COMPLETED');
  const open1 = await own.run({ text: SAGA });
  await own.until(open1, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const next = await own.run({ text: playbook('later') });
  const page = await open(own, '#/runs?status=RUNNING', { height: 760 });
  await page.goto(`${own.url}/#/runs`);
  await page.getByLabel(`Select ${open1}`).waitFor();
  await page.getByLabel('Select all runs that are loaded').check();
  await page.getByRole('button', { name: 'Cancel and undo' }).click();
  const hit = page.getByTestId('bulk-hit');
  await hit.getByRole('link', { name: open1 }).waitFor();
  assert.ok(await hit.getByRole('link', { name: open1 }).isVisible());
  assert.match(await hit.getByRole('heading').innerText(), /^Will be cancelled and undone\s+2$/);
  assert.match(await page.getByTestId('bulk-refused').getByRole('heading').innerText(), /^Would refuse\s+12$/);
  assert.match(await page.getByTestId('bulk-refusal').first().innerText(), /or retry it/);
  const [above, below] = [await hit.boundingBox(), await page.getByTestId('bulk-refused').boundingBox()];
  assert.ok(above.y < below.y);
  await page.goto(`${own.url}/#/queue`);
  const takers = page.getByTestId('takers');
  await takers.getByRole('link', { name: 'booking' }).waitFor();
  assert.equal(await takers.getByRole('link', { name: 'booking' }).getAttribute('href'), `#/runs/${open1}`);
  await page.getByRole('link', { name: next }).waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('a refusal in a form is said in words, with the code nearest to the cause; the audit log does not call it done', async () => {
  const own = new Served();
  own.network = '';
  await own.start();
  const page = await open(own, '#/outbox');
  await page.getByRole('button', { name: 'Register a sink' }).click();
  await page.getByLabel('Name').fill('inside');
  await page.getByLabel('Address').fill('webhook:http://127.0.0.1:9/');
  await page.getByRole('dialog').getByRole('button', { name: 'Register' }).click();
  const alert = page.getByRole('dialog').getByRole('alert');
  await alert.getByText('is inside this machine').waitFor();
  assert.ok(!/[A-Z]+_[A-Z]+:/.test(await alert.innerText()), await alert.innerText());
  await alert.getByRole('link', { name: 'HOST_DENIED' }).waitFor();
  await page.keyboard.press('Escape');
  await page.goto(`${own.url}/#/audit`);
  await page.getByText('tried to write a sink').first().waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('names may have every letter there is: definitions, steps, labels, business keys and tenants, in addresses, filters and on the way back', async () => {
  const own = await new Served(['--parallel', '8']).start();
  const names = ['Größe', '注文 🚚', 'a/b%c+d&e'];
  for (const [i, name] of names.entries()) await own.register(playbook(JSON.stringify(name), 'workload: { "Straße": "Ünï 🚚" }\n', '  - step: prüfen-検査\n    tool: { kind: noop }\n'), `n${i}.yaml`);
  const keyed = await own.run({ text: 'workflowType: Bestellung-Ö\nworkflowVersion: 1\nbizKey: "{{ workload.kunde }}"\nsteps:\n  - stepType: PRÜFEN\n    waitFor: { event: zahlung }\n' }, { kunde: 'Müller & Söhne 🚚' }, { tenant: 'Köln', labels: { Größe: 'XL 🚚', team: 'blau, grün=ä+&%' } });
  const page = await open(own, '#/definitions');
  const head = (name) => page.getByRole('heading', { name, level: 1, exact: true });
  const only = async (run) => {
    await page.waitForFunction(() => document.querySelectorAll('[data-index]').length === 1);
    await page.getByLabel(`Select ${run}`).waitFor();
  };
  for (const name of names) {
    await page.goto(`${own.url}/#/definitions`);
    await page.getByRole('link', { name, exact: true }).click();
    await head(name).waitFor();
    await page.locator('[data-step="prüfen-検査"]').waitFor();
    await page.reload();
    await head(name).waitFor();
    await page.getByRole('button', { name: 'Start a run' }).click();
    assert.equal(await page.getByLabel('Straße').inputValue(), 'Ünï 🚚');
    await page.getByRole('button', { name: 'Start the run' }).click();
    await page.waitForURL(/#\/runs\/run_/);
    const run = /run_[\w-]+/.exec(page.url())[0];
    await head(name).waitFor();
    await page.goBack();
    await head(name).waitFor();
    await page.getByRole('link', { name: 'All runs of this definition' }).click();
    await only(run);
    await page.goBack();
    await head(name).waitFor();
  }
  // A label as it is shown is looked for as a label, and so is one that is clicked.
  await page.goto(`${own.url}/#/runs`);
  await page.getByLabel('Search runs').fill('Größe=XL 🚚');
  await page.getByLabel('Search runs').press('Enter');
  await page.waitForURL(/labels=/);
  await only(keyed);
  await page.goto(`${own.url}/#/runs?businessKey=${encodeURIComponent('Müller & Söhne 🚚')}`);
  await only(keyed);
  await page.getByRole('button', { name: 'Größe=XL 🚚' }).click();
  await page.waitForURL(/labels=/);
  await only(keyed);
  await page.goto(`${own.url}/#/runs`);
  await page.getByRole('button', { name: 'Filters' }).click();
  await page.getByLabel('Tenant').fill('Köln');
  await page.getByLabel('Tenant').press('Enter');
  await page.waitForURL(/tenant=/);
  await only(keyed);
  await page.reload();
  await only(keyed);
  // What a name may not have is said.
  await page.goto(`${own.url}/#/schedules`);
  await page.getByRole('button', { name: 'New schedule' }).click();
  await page.getByLabel('Name').fill('nächtlich');
  await page.getByLabel('Definition').fill('Größe');
  await page.getByRole('dialog').getByRole('button', { name: 'Save' }).click();
  await page.getByRole('dialog').getByRole('alert').getByText('letters from A to Z').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('the first of two approvals does not make a task new, and its end is in local time; a playbook that waits for a slot is queued', async () => {
  const own = await new Served([], undefined, { config: '[limits]\nruns = 1\n' }).start();
  const run = await own.run({ text: plan('two-people', '  - stepId: sign\n    approval: { approvers: 2, timeout: 30h }\n') });
  await own.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const since = (await own.ask('GET', '/api/v1/inbox')).tasks[0].since;
  await new Promise((done) => setTimeout(done, 1500));
  await own.ask('POST', `/api/v1/runs/${run}/steps/sign/complete`, { outcome: 'succeeded' }, { 'stepwell-actor': 'ada' });
  const task = (await own.ask('GET', '/api/v1/inbox')).tasks[0];
  assert.deepEqual([task.since, task.approvals], [since, 1]);
  const queued = await own.run({ text: playbook('later') });
  const page = await open(own, '#/inbox', { actor: 'bob' });
  await page.getByText('1 of 2', { exact: true }).waitFor();
  assert.ok(!/UTC/.test(await page.getByRole('region', { name: 'Task' }).innerText()));
  await page.goto(`${own.url}/#/runs`);
  await page.getByRole('row').filter({ has: page.getByLabel(`Select ${queued}`) }).getByText('queued').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('steps of many runs that have failed and are held are retried at once, and the number beside Runs tells of them', async () => {
  const own = await new Served(['--parallel', '8']).start();
  const runs = [];
  for (let i = 0; i < 3; i++) runs.push(await own.run({ text: FAILS_ONCE(own.folder) }));
  const other = await own.run({ text: SAGA });
  for (const run of runs) await own.until(run, (it) => it.ext.waitsFor.some((reason) => reason.needs?.need === 'repair'));
  await own.until(other, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const page = await open(own, '#/definitions');
  await page.getByTestId('asks-runs').getByText('3', { exact: true }).waitFor();
  await page.getByRole('link', { name: 'Runs 3 runs are held up' }).click();
  // It waits for manual work: the list does not call it an approval.
  await page.getByRole('row').filter({ has: page.getByLabel(`Select ${other}`) }).getByText('Waiting', { exact: true }).waitFor();
  await page.getByLabel(`Select ${other}`).check();
  assert.equal(await page.getByRole('button', { name: 'Retry held steps' }).count(), 0);
  await page.getByRole('button', { name: 'Held up 3' }).click();
  await page.waitForURL(/held=1/);
  // A reason leads to its runs.
  const reasons = page.getByTestId('held-reasons');
  assert.equal(await reasons.getByRole('link').count(), 3);
  assert.match(await reasons.getByRole('link').first().getAttribute('href'), /^#\/runs\/run_.*\?step=deliver$/);
  await page.getByLabel(`Select ${other}`).waitFor({ state: 'detached' });
  await page.getByLabel('Select all runs that are loaded').check();
  await page.getByRole('button', { name: 'Retry held steps' }).click();
  const says = page.getByTestId('bulk-says');
  await says.getByText('Nothing has happened yet.').waitFor();
  assert.match(await says.innerText(), /3 runs will be continued/);
  writeFileSync(join(own.folder, 'parcel'), '');
  await page.getByRole('dialog').getByRole('button', { name: 'Retry the held steps of 3 runs' }).click();
  for (const run of runs) await own.until(run, (it) => it.status === 'COMPLETED');
  await page.getByTestId('asks-runs').waitFor({ state: 'detached' });
  calm(page);
  await page.done();
  // One that has nothing to retry says so.
  const answer = await own.ask('POST', '/api/v1/runs/bulk', { action: 'retry_held_steps', runs: [other], dryRun: true });
  assert.deepEqual([answer.refused, answer.runs[0].problem.code], [1, 'STEP_NOT_TERMINAL']);
  await own.stop();
});
