// Pages beside the page of one run: what is typed is what is sent, long names fit, lists say what the runs say, and names may have
// every letter there is.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { calm, closeBrowser, open, plan, Served } from './support.mjs';

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
