// What people with fresh eyes have found since: schedules, files of `stepwell dev`, keys of a page, completion, sources.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { BIN, button, calm, closeBrowser, forPerson, GREETS, open, proxied, SAGA, Served, waits } from './support.mjs';

let server;
before(async () => {
  server = await new Served().start();
  await server.register(GREETS, 'greets.yaml');
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const FAILS = GREETS.replace('name: greets', 'name: fails').replace('echo {{ workload.greeting }}', 'exit 3');

test('a schedule whose runs fail says so in the list, and its last runs have states', async () => {
  const own = await new Served().start();
  await own.register(FAILS, 'fails.yaml');
  await own.ask('PUT', '/api/v1/schedules/often', { cron: '* * * * * *', definition: 'fails', overlap: 'skip', catchUp: 'latest' });
  const page = await open(own, '#/schedules?name=often');
  await page.getByTestId('last-runs').getByText(/^[1-9]\d* of \d+ failed$/).waitFor({ timeout: 20_000 });
  await page.getByTestId('last-run').getByText('failed').first().waitFor();
  await page.getByText('skip this time').waitFor();
  // The last ten, however many there were; what is done with the schedule comes before them.
  assert.ok((await page.getByTestId('last-run').count()) <= 10);
  await own.ask('POST', '/api/v1/schedules/often/pause', {});
  await page.goto(`${own.url}/#/schedules?name=nobody`);
  await page.getByText('There is no schedule').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

/** A `stepwell dev` of a folder. */
async function dev(folder) {
  const child = spawn(BIN, ['dev', folder, '--listen', '127.0.0.1:0', '--store', join(folder, 'stepwell.db')], { cwd: folder, stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, STEPWELL_STORE: '', STEPWELL_CONFIG: '' } });
  const url = await new Promise((done, failed) => {
    let text = '';
    child.stderr.on('data', (bytes) => {
      text += bytes;
      const found = /open (http:\/\/\S+?)\/ in a browser/.exec(text);
      if (found) done(found[1]);
    });
    child.on('exit', (code) => failed(new Error(`dev ended with ${code}: ${text}`)));
  });
  return { url, stop: async () => { const gone = new Promise((done) => child.once('exit', done)); child.kill('SIGKILL'); await gone; } };
}

test('dev: a file with errors is shown with them, and who edits the definition of a file is told that the file stays', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'stepwell-dev-'));
  writeFileSync(join(folder, 'greets.yaml'), GREETS);
  writeFileSync(join(folder, 'bad.yaml'), FAILS.replace('kind: shell', 'kind: shel'));
  const own = await dev(folder);
  const front = process.env.STEPWELL_UI_BUNDLE && (await proxied({ port: Number(new URL(own.url).port) }, '', process.env.STEPWELL_UI_BUNDLE));
  own.url = front?.base ?? own.url;
  const page = await open(own, '#/definitions');
  const bad = page.getByRole('region', { name: 'Problems of bad.yaml' });
  await bad.getByText('is not loaded').waitFor();
  await bad.getByText(/^\d+:\d+$/).first().waitFor();
  await bad.getByText('The file has no definition yet.').waitFor();
  writeFileSync(join(folder, 'bad.yaml'), FAILS);
  await bad.waitFor({ state: 'detached' });
  await page.getByRole('link', { name: 'fails', exact: true }).waitFor();
  writeFileSync(join(folder, 'bad.yaml'), `${FAILS}nonsense: [`);
  await bad.getByText('is as the file was before.').waitFor();
  await page.goto(`${own.url}/#/definitions/greets?edit=1`);
  await page.getByTestId('of-file').getByText('The file stays as it is').waitFor();
  calm(page);
  await page.done();
  front?.close();
  await own.stop();
  rmSync(folder, { recursive: true, force: true });
});

test('the help has the keys of the page first; rows of tables are reached with j and k', async () => {
  await server.ask('PUT', '/api/v1/schedules/one', { cron: '0 2 * * *', definition: 'greets' });
  await server.ask('PUT', '/api/v1/schedules/two', { cron: '0 2 * * *', definition: 'greets' });
  const page = await open(server, '#/schedules');
  await page.getByRole('button', { name: 'two' }).waitFor();
  await page.keyboard.press('j');
  await page.keyboard.press('j');
  assert.equal(await page.evaluate(() => document.activeElement.textContent), 'two');
  await page.keyboard.press('k');
  await page.keyboard.press('Enter');
  await page.waitForURL(/name=one/);
  await page.keyboard.press('?');
  const help = page.getByRole('dialog', { name: 'Keys' });
  await help.getByText('On this page: schedules').waitFor();
  const own = await help.getByTestId('keys-of-page').innerText();
  assert.match(own, /Next schedule/);
  assert.match(own, /New schedule/);
  assert.doesNotMatch(own, /Search runs|Go to/);
  await page.keyboard.press('Escape');
  await page.keyboard.press('n');
  await page.getByRole('dialog', { name: 'New schedule' }).waitFor();
  await server.run({ name: 'greets' });
  await page.goto(`${server.url}/#/runs`);
  await page.reload();
  await page.getByLabel('Search runs').waitFor();
  await page.keyboard.press('?');
  assert.match(await help.getByTestId('keys-of-page').innerText(), /Search runs/);
  calm(page);
  await page.done();
});

test('the editor completes kinds of tools, their fields and names of steps, begins in every language, and says the language of the text', async () => {
  const page = await open(server, '#/definitions?new=playbook');
  const code = page.getByRole('textbox', { name: 'Definition' });
  await page.getByText('can be run').waitFor();
  const options = page.locator('.cm-tooltip-autocomplete li');
  const write = async (text) => {
    await code.click();
    await page.keyboard.press('Control+a');
    await page.keyboard.press('Delete');
    if (text) await page.keyboard.insertText(text);
  };
  await write('');
  await page.keyboard.press('Control+Space');
  for (const language of ['playbook', 'plan', 'dag', 'actions', 'linear']) await options.filter({ hasText: new RegExp(`^${language}a small`) }).waitFor();
  await options.filter({ hasText: /^workflowType/ }).waitFor();
  await page.keyboard.press('Escape');
  const head = 'apiVersion: noetl.io/v2\nkind: Playbook\nmetadata: { name: mine }\nworkflow:\n  - step: first\n    tool: { kind: noop }\n  - step: second\n    tool: { kind: ';
  await write(head);
  await page.waitForTimeout(700);
  await page.keyboard.press('Control+Space');
  await options.filter({ hasText: /^python/ }).waitFor();
  await page.keyboard.press('Escape');
  await page.keyboard.insertText('shell, ');
  await page.keyboard.press('Control+Space');
  await options.filter({ hasText: /^cmdss/ }).waitFor();
  assert.equal(await options.filter({ hasText: /^url/ }).count(), 0);
  await page.keyboard.press('Escape');
  await page.keyboard.insertText('cmds: ["true"] }\n    next: { arcs: [{ step: ');
  await page.keyboard.press('Control+Space');
  await options.filter({ hasText: /^first/ }).waitFor();
  await page.keyboard.press('Escape');
  // Another language is pasted: the page follows the text.
  await page.getByLabel('Language').selectOption('dag');
  await page.locator('.chip').getByText('dag', { exact: true }).waitFor();
  await write(GREETS);
  await page.locator('.chip').getByText('playbook', { exact: true }).waitFor();
  assert.equal(await page.getByLabel('Language').inputValue(), 'playbook');
  page.complaints = page.complaints.filter((it) => !it.startsWith('Applying inline style'));
  calm(page);
  await page.done();
});

test('an item of a loop has its own state, in the word of the language', async () => {
  const text = `apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: one-fails }
workload: { all: [1, 2, 3] }
workflow:
  - step: each
    loop: { in: "{{ workload.all }}", iterator: it }
    tool: { kind: shell, cmds: ["test {{ iter.it }} != 2"] }
`;
  const run = await server.run({ text });
  await server.until(run, (it) => it.status === 'FAILED');
  const page = await open(server, `#/runs/${run}?step=${encodeURIComponent('each[0]')}`);
  const panel = page.getByTestId('step');
  await panel.getByText('item 0 of').waitFor();
  const first = (await panel.locator('[data-word]').first().getAttribute('data-word')).toLowerCase();
  assert.doesNotMatch(first, /fail/);
  await page.goto(`${server.url}/#/runs/${run}?step=${encodeURIComponent('each[1]')}`);
  await panel.getByText('item 1 of').waitFor();
  assert.match((await panel.locator('[data-word]').first().getAttribute('data-word')).toLowerCase(), /fail/);
  // The tab tells which run it is.
  assert.match(await page.title(), new RegExp(`one-fails …${run.slice(-6)}, `));
  calm(page);
  await page.done();
});

test('an action while the server is away is not promised to be sent later; a cancel says what stays', async () => {
  const own = await new Served().start();
  const run = await own.run({ text: SAGA });
  await own.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const plan = `metadata: { planId: deploy, planVersion: 1.0.0, schemaVersion: v1.2, requiresCapabilities: [basic-execution], fallbackBehavior: reject }
steps:
  - { stepId: build, tool: { kind: noop } }
  - { stepId: wait, dependsOn: [build], waitFor: { event: go } }
`;
  const other = await own.run({ text: plan });
  await own.until(other, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
  const page = await open(own, `#/runs/${other}`);
  await page.getByRole('button', { name: 'Cancel', exact: true }).click();
  await page.getByText('Undo them').click();
  await page.getByTestId('stays').getByText('build').waitFor();
  await button(page, 'Let it run').click();
  await page.goto(`${own.url}/#/runs/${run}`);
  await page.getByRole('heading', { name: 'booking' }).waitFor();
  await page.getByRole('button', { name: 'Pause', exact: true }).click();
  await own.kill();
  await button(page, 'Pause the run').click();
  const alert = page.getByRole('dialog').getByRole('alert');
  await alert.getByText('not sent again by itself').waitFor();
  assert.equal(await alert.getByText('asks again until').count(), 0);
  await own.start();
  await page.getByRole('status').getByText('Live').waitFor({ timeout: 20_000 });
  assert.equal((await own.ask('GET', `/api/v1/runs/${run}`)).status, 'RUNNING');
  await button(page, 'Pause the run').click();
  await own.until(run, (it) => it.status === 'PAUSED');
  await page.done();
  await own.stop();
});

test('a sink that this server may not deliver to says why', async () => {
  const own = await new Served().start();
  await own.ask('PUT', '/api/v1/sinks/inside', { address: 'webhook:http://127.0.0.1:9/events' });
  await own.kill();
  // The rule of the network is another one from now on.
  own.network = '';
  await own.start();
  const page = await open(own, '#/outbox');
  await page.getByTestId('sink-problem').getByText(/HOST_DENIED/).waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('a row of runs on a phone has the whole name, the state, the start and the duration', async () => {
  const run = await server.run({ name: 'greets' });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const page = await open(server, '#/runs?plan=greets', { width: 375, height: 800 });
  const row = page.getByRole('row').filter({ has: page.getByLabel(`Select ${run}`) });
  await row.waitFor();
  const name = row.getByRole('link', { name: 'greets' }).first();
  assert.ok(await name.evaluate((it) => it.scrollWidth <= it.clientWidth), 'the name is cut');
  assert.match(await row.locator('[data-cell=started]').innerText(), /\d\d:\d\d/);
  await row.locator('[data-cell=state] [data-word]').waitFor();
  const tall = await row.evaluate((it) => it.getBoundingClientRect().height);
  assert.ok(tall > 60 && tall < 70, `${tall}`);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  calm(page);
  await page.done();
});

test('what a form creates takes no name that something has: schedules, sinks, webhooks and sources say so at the name', async () => {
  const own = await new Served().start();
  await own.register(GREETS, 'greets.yaml');
  const target = { start: { definition: 'greets' } };
  const before = {
    schedules: { cron: '0 1 * * *', definition: 'greets' },
    webhooks: { target, signature: { github: {} }, secret: '${secret:HOOK}' },
    sources: { target, address: 'redis://127.0.0.1:9/?stream=orders' },
    sinks: { address: 'webhook:http://127.0.0.1:9/before' },
  };
  for (const [kinds, body] of Object.entries(before)) await own.ask('PUT', `/api/v1/${kinds}/s1`, body);
  const page = await open(own, '#/schedules');
  const dialog = page.getByRole('dialog');
  const name = dialog.getByLabel('Name', { exact: true });
  const create = async (path, opens, kind, verb, fill) => {
    await page.goto(`${own.url}/#/${path}`);
    await page.getByRole('button', { name: opens }).click();
    await name.fill('s1');
    await fill();
    await button(page, verb).click();
    await dialog.getByRole('alert').getByText(`There is a ${kind} s1 already. Edit that ${kind}, or choose another name.`, { exact: true }).waitFor();
    assert.equal(await name.getAttribute('aria-invalid'), 'true');
    await name.fill('s2');
    await dialog.getByRole('alert').waitFor({ state: 'detached' });
    await button(page, verb).click();
    await dialog.waitFor({ state: 'detached' });
  };
  const definition = () => dialog.getByLabel('Definition').fill('greets');
  await create('schedules', 'New schedule', 'schedule', 'Save', definition);
  await create('webhooks', 'New webhook', 'webhook', 'Save', async () => {
    await definition();
    await dialog.getByLabel('Reference to the secret, never').fill('${secret:HOOK}');
  });
  await create('sources', 'New source', 'source', 'Save', async () => {
    await definition();
    await dialog.getByLabel('Address of the broker').fill('redis://127.0.0.1:9/?stream=others');
  });
  await create('outbox', 'Register a sink', 'sink', 'Register', () => dialog.getByLabel('Address').fill('webhook:http://127.0.0.1:9/other'));
  assert.equal((await own.ask('GET', '/api/v1/schedules/s1')).cron, '0 1 * * *');
  assert.match((await own.ask('GET', '/api/v1/sources/s1')).address, /stream=orders/);
  // Who wants the address of a sink to be another one says so.
  const sink = async () => (await own.ask('GET', '/api/v1/sinks')).find((it) => it.name === 's1').address;
  const was = await sink();
  await page.getByRole('row').filter({ hasText: 's1' }).getByRole('button', { name: 'Edit' }).click();
  assert.ok(await name.isDisabled());
  await dialog.getByLabel('New address').fill('webhook:http://127.0.0.1:8/after');
  await button(page, 'Save').click();
  await dialog.waitFor({ state: 'detached' });
  assert.notEqual(await sink(), was);
  calm(page);
  await page.done();
  await own.stop();
});

test('a label is typed slowly into the search of runs, is looked for when it is written, and is seen and removed beside it', async () => {
  const own = await new Served().start();
  for (const batch of ['b1', 'b2']) await own.run({ text: GREETS }, {}, { labels: { batch, team: 'blue' } });
  const page = await open(own, '#/runs');
  const search = page.getByLabel('Search runs');
  const loaded = (says) => page.getByTestId('loaded').getByText(says, { exact: true }).waitFor();
  await loaded('2 runs');
  await search.pressSequentially('batch=b1', { delay: 350 });
  await page.waitForTimeout(400);
  assert.equal(await search.inputValue(), 'batch=b1');
  assert.doesNotMatch(page.url(), /labels=|%3D/);
  await search.press('Enter');
  await loaded('1 run');
  assert.equal(await search.inputValue(), '');
  assert.equal(new URLSearchParams(page.url().split('?')[1]).get('text'), null);
  // To leave the field is as good as Enter. One label more narrows the list, and each can be taken away.
  const chips = page.getByTestId('label-filter');
  await search.fill('team=blue');
  await search.blur();
  await page.getByRole('button', { name: 'Remove the label team=blue' }).waitFor();
  assert.deepEqual(await chips.allTextContents(), ['batch=b1', 'team=blue']);
  await loaded('1 run');
  await page.getByRole('button', { name: 'Remove the label batch=b1' }).click();
  await loaded('2 runs');
  assert.deepEqual(await chips.allTextContents(), ['team=blue']);
  await chips.click();
  await page.waitForURL((it) => !it.href.includes('labels'));
  assert.equal(await chips.count(), 0);
  calm(page);
  await page.done();
  await own.stop();
});

test('manual work that failed is asked for once more, with what would be undone, and needs a few words', async () => {
  const run = await server.run({ text: SAGA });
  await server.until(run, forPerson);
  const page = await open(server, `#/runs/${run}`, { actor: 'bob' });
  await waits(page).getByRole('button', { name: 'Answer' }).click();
  await page.getByLabel('Name of field 1').fill('room');
  await button(page, 'It failed').click();
  const failing = page.getByTestId('failing');
  await failing.getByText('The step fails. The run then goes on, fails or is undone, as its definition says.').waitFor();
  await failing.getByText('hotel').waitFor();
  assert.deepEqual(await failing.getByRole('listitem').allTextContents(), ['hotel', 'flight', 'newsletter']);
  // Who goes back has what was filled in.
  await button(page, 'Back').click();
  assert.equal(await page.getByLabel('Name of field 1').inputValue(), 'room');
  await button(page, 'It failed').click();
  const words = page.getByLabel('What went wrong, which the log keeps (needed)');
  for (const nothing of ['', '  ']) {
    await words.fill(nothing);
    await button(page, 'Yes, it failed').click();
    assert.ok(await words.evaluate((it) => !it.validity.valid && document.activeElement === it));
  }
  assert.ok(forPerson(await server.ask('GET', `/api/v1/runs/${run}`)));
  await words.fill('the guest did not come');
  await button(page, 'Yes, it failed').click();
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  const view = await server.until(run, (it) => it.status === 'FAILED');
  const answer = view.ext.answers.find((it) => it.stepId === 'wait-for-guest');
  assert.deepEqual([answer.by, answer.outcome, answer.notes], ['bob', 'failed', 'the guest did not come']);
  calm(page);
  await page.done();
});

test('the editor says what a text with another name registers, and that the definition that was opened stays', async () => {
  const named = (name) => GREETS.replace('name: greets', `name: ${name}`);
  await server.register(named('known'), 'known.yaml');
  const page = await open(server, '#/definitions/greets?edit=1');
  const becomes = page.getByTestId('becomes');
  const write = async (value) => {
    await page.locator('.cm-content').click();
    await page.keyboard.press('Control+A');
    await page.keyboard.insertText(value);
  };
  await page.getByText('can be run').waitFor();
  assert.equal(await becomes.count(), 0);
  await write(named('known'));
  await becomes.getByText('There is a definition known already. This registers a new revision of it; greets stays as it is.', { exact: true }).waitFor();
  await write(named('other-name'));
  await becomes.getByText('This registers a new definition, other-name; greets stays as it is.', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Register' }).click();
  await page.waitForURL(/#\/definitions\/other-name/);
  assert.equal((await server.ask('GET', '/api/v1/definitions/greets')).revisions.length, 1);
  // A new text may have the name of a definition, too.
  await page.goto(`${server.url}/#/definitions?new=1`);
  await page.getByText('can be run').waitFor();
  await write(named('known'));
  await becomes.getByText('There is a definition known already. This registers a new revision of it.', { exact: true }).waitFor();
  // Chromium keeps the style of text that is replaced in an attribute, which the policy blocks.
  page.complaints = page.complaints.filter((it) => !it.startsWith('Applying inline style'));
  calm(page);
  await page.done();
});
