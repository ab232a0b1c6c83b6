// Long lists and large graphs: the place is kept, steps are found, states are in the words of a language, and a phone shows times.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { APPROVAL, calm, closeBrowser, GREETS, open, SAGA, Served } from './support.mjs';

let server;
before(async () => {
  server = await new Served(['--parallel', '8']).start();
  await server.register(GREETS, 'greets.yaml');
});
after(async () => {
  await closeBrowser();
  await server.stop();
});
const waits = (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside');
const DAG = `apiVersion: ioa.dev/v0.2
kind: Workflow
metadata: { name: order, owner: tests }
spec:
  timeout: 1h
  steps:
    - { name: reserve, tool: { kind: noop } }
    - { name: sign-off, gate: approval, agent: boss, action: "Is this order fine?", dependsOn: [reserve] }
`;

test('the chips of a language have its own words, with counts, and a pause is seen in every language', async () => {
  const own = await new Served().start();
  const runs = [];
  for (let i = 0; i < 3; i++) runs.push(await own.run({ text: DAG }));
  for (const run of runs) await own.until(run, waits);
  await own.ask('POST', `/api/v1/runs/${runs[0]}/cancel`, {});
  await own.until(runs[0], (it) => it.status === 'CANCELLED');
  await own.ask('POST', `/api/v1/runs/${runs[1]}/signals`, { signalType: 'PAUSE' });
  const approval = await own.run({ text: APPROVAL });
  await own.until(approval, waits);
  const words = async (language) => {
    const rows = (await own.ask('GET', `/api/v1/runs?language=${language}&limit=50`)).runs;
    return rows.reduce((all, it) => ({ ...all, [it.word]: (all[it.word] ?? 0) + 1 }), {});
  };
  const page = await open(own, '#/runs');
  const chips = page.getByRole('group', { name: /^Stat/ });
  await chips.getByRole('button', { name: 'Cancelled 1' }).waitFor();
  for (const [language, other] of [['actions', 'Running'], ['dag', 'Cancelled']]) {
    await page.getByLabel('Language').selectOption(language);
    // A list does not know whether an approval, manual work or an event is waited for.
    const wanted = Object.entries(await words(language)).map(([word, count]) => `${word === 'WaitingForApproval' ? 'Waiting' : word} ${count}`);
    for (const it of wanted) await chips.getByRole('button', { name: it, exact: true }).waitFor();
    const shown = (await chips.getByRole('button').allInnerTexts()).map((it) => it.trim().replace(/\s+/g, ' ')).filter((it) => !/^(All|Held)/.test(it));
    assert.deepEqual(shown.sort(), wanted.sort());
    assert.ok(!shown.some((it) => it.startsWith(other)), shown.join());
  }
  // One filter: the chip.
  const [word] = Object.keys(await words('dag'));
  await chips.getByRole('button', { name: new RegExp(`^${word} `) }).click();
  await page.waitForURL(new RegExp(`state=${word}`));
  const count = (await words('dag'))[word];
  await page.waitForFunction((wanted) => document.querySelectorAll('[data-index]').length === wanted, count);
  assert.equal(await page.getByLabel('State', { exact: true }).count(), 0);
  await chips.getByRole('button', { name: 'All' }).click();
  await page.getByRole('row').filter({ has: page.getByLabel(`Select ${runs[1]}`) }).getByText('paused').waitFor();
  calm(page);
  await page.done();
  await own.stop();
});

test('who comes back to the list of runs is where they were; a new way to the list begins at the top', async () => {
  for (let i = 0; i < 260; i += 20) await Promise.all(Array.from({ length: 20 }, () => server.run({ name: 'greets' })));
  const page = await open(server, '#/runs');
  const list = page.locator('[data-list]');
  const top = () => list.evaluate((it) => it.scrollTop);
  await page.locator('[data-index]').first().waitFor();
  await list.evaluate((it) => (it.scrollTop = 199 * 44));
  await page.waitForFunction(() => Number(document.querySelector('[data-list] [data-index]')?.dataset.index) > 150 && !document.querySelector('[data-testid=loaded]')?.textContent.startsWith('200 '));
  await list.evaluate((it) => (it.scrollTop = 230 * 44));
  const row = page.locator('[data-index="235"]');
  await row.waitFor();
  const was = await top();
  const href = await row.getByRole('link').first().getAttribute('href');
  await row.getByRole('link').first().click();
  await page.getByRole('heading', { name: 'greets' }).waitFor();
  await page.goBack();
  await page.locator('[data-index="235"]').waitFor();
  assert.ok(Math.abs((await top()) - was) < 50, `${await top()} is not ${was}`);
  assert.equal(await page.locator('[data-index="235"]').getByRole('link').first().getAttribute('href'), href);
  // It is live: a run that is new is told, above what is seen.
  const fresh = await server.run({ name: 'greets' });
  await page.waitForFunction((wanted) => document.querySelector('[data-index="236"] a')?.getAttribute('href') === wanted, href);
  await page.getByRole('link', { name: 'Inbox' }).click();
  await page.getByRole('heading', { name: 'Inbox' }).waitFor();
  await page.getByRole('link', { name: 'Runs', exact: true }).first().click();
  await page.getByLabel(`Select ${fresh}`).waitFor();
  assert.equal(await top(), 0);
  calm(page);
  await page.done();
});

test('a step of a large graph is found by its name or state with the keyboard, is brought into sight, and keeps the focus', async () => {
  const steps = Array.from({ length: 400 }, (_, i) => `    - { name: s${i}, tool: { kind: ${i === 377 ? 'shell, cmds: ["exit 3"]' : 'noop'} }${i >= 10 ? `, dependsOn: [s${i - 10}]` : ''} }`).join('\n');
  const run = await server.run({ text: `apiVersion: ioa.dev/v0.2\nkind: Workflow\nmetadata: { name: many, owner: tests }\nspec:\n  timeout: 1h\n  steps:\n${steps}\n` });
  await server.until(run, (it) => it.status === 'FAILED', 120_000);
  const page = await open(server, `#/runs/${run}`);
  // The graph opens at what has failed.
  await page.locator('[data-step=s377]').waitFor();
  assert.equal(await page.locator('[data-step=s5]').count(), 0, 'it is far away');
  await page.keyboard.press('/');
  await page.keyboard.type('s5');
  await page.keyboard.press('Enter');
  await page.waitForURL(/step=s5/);
  await page.locator('[data-step=s5][aria-pressed=true]').waitFor();
  const field = page.getByRole('combobox', { name: 'Find a step' });
  assert.equal(await field.evaluate((it) => it === document.activeElement), true, 'the focus stays');
  // By its state: what has failed.
  await field.fill('failed');
  await page.getByRole('option', { name: 's377 failed' }).waitFor();
  await page.keyboard.press('Enter');
  await page.locator('[data-step=s377]').waitFor();
  await page.waitForURL(/step=s377/);
  await field.fill('no such step');
  await page.getByText('No step has this name or state.').waitFor();
  await page.keyboard.press('Escape');
  // A step that is chosen with the keyboard keeps the focus and its place, also when the slider travels.
  const node = page.locator('[data-step=s377]');
  await node.focus();
  // In the graph: what is above it comes and goes.
  const place = async () => {
    const [own, all] = [await node.boundingBox(), await page.getByTestId('graph').boundingBox()];
    return { x: own.x - all.x, y: own.y - all.y };
  };
  // It is still being brought into sight.
  let before;
  do {
    before = await place();
    await page.waitForTimeout(300);
  } while (JSON.stringify(before) !== JSON.stringify(await place()));
  await page.keyboard.press('Enter');
  await page.keyboard.press('[');
  await page.waitForURL(/at=\d+/);
  await page.getByText('Back to now').waitFor();
  await page.waitForTimeout(400);
  const later = await place();
  assert.ok(Math.abs(later.x - before.x) < 2 && Math.abs(later.y - before.y) < 2, `${JSON.stringify(before)} ${JSON.stringify(later)}`);
  assert.equal(await page.evaluate(() => document.activeElement?.getAttribute('data-step')), 's377');
  // The next step by key is brought into sight too.
  await page.keyboard.press('Escape');
  await page.goto(`${server.url}/#/runs/${run}?step=s3`);
  await page.locator('[data-step=s3]').waitFor();
  assert.equal(await page.locator('[data-step=s3]').count(), 1);
  await page.getByRole('link', { name: 'Svelte Flow' }).waitFor();
  calm(page);
  await page.done();
});

test('on a phone events and lines of logs have times, and an event that is opened is in sight', async () => {
  const run = await server.run({ name: 'greets' });
  await server.until(run, (it) => it.status === 'COMPLETED');
  const saga = await server.run({ text: SAGA });
  await server.until(saga, waits);
  const page = await open(server, `#/runs/${saga}?tab=events`, { width: 375, height: 700 });
  const TIME = /\d\d:\d\d:\d\d/;
  const row = page.getByRole('button').filter({ hasText: 'StepCompleted' }).first();
  await row.waitFor();
  assert.match(await row.innerText(), TIME);
  await row.click();
  await page.locator('#event-detail').waitFor();
  await page.waitForFunction(() => {
    const box = document.querySelector('#event-detail pre')?.getBoundingClientRect();
    return box && box.top >= 0 && box.top < innerHeight - 100;
  });
  await page.goto(`${server.url}/#/runs/${run}?tab=logs&step=greet`);
  const line = page.getByTestId('log').locator('[data-stream=out]').first();
  await line.waitFor();
  await line.locator('[data-at]').waitFor();
  assert.match(await line.innerText(), TIME);
  assert.ok(await page.evaluate(() => document.documentElement.scrollWidth <= innerWidth));
  calm(page);
  await page.done();
});
