// Every page: nothing that axe finds, nothing that the policy forbids, and the same under a path of a proxy.
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { after, before, test } from 'node:test';
import { APPROVAL, closeBrowser, open, proxied, SAGA, Served } from './support.mjs';

const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
let server;
let run;
let failed;
before(async () => {
  server = await new Served().start();
  await server.register(APPROVAL, 'pay-out.yaml');
  await server.ask('POST', '/api/v1/runs', { definition: { name: 'pay-out' } }, { 'stepwell-actor': 'ada' });
  run = await server.run({ text: SAGA });
  failed = await server.run({ text: SAGA.replace('actionId: newsletter, order: 3, portFamily: demo, operation: "mail:send", sideEffecting: true, tool: { kind: noop }', 'actionId: newsletter, order: 3, portFamily: demo, operation: "mail:send", tool: { kind: shell, cmds: ["echo no mail >&2; exit 1"] }, retryPolicy: { maxAttempts: 1 }') });
  await server.ask('PUT', '/api/v1/schedules/nightly', { cron: '0 2 * * *', definition: 'pay-out' });
  await server.ask('PUT', '/api/v1/webhooks/hook', { target: { start: { definition: 'pay-out', params: { amount: 1 } } }, signature: { generic: { header: 'X-Signature' } }, secret: '${secret:HOOK}' });
  await server.ask('PUT', '/api/v1/sources/orders', { address: 'nats://127.0.0.1:9/ORDERS', target: { event: { type: 'order.placed', keyFrom: '/order/id' } } });
  await server.ask('PUT', '/api/v1/sinks/warehouse', { address: 'webhook:http://127.0.0.1:9/events' });
  await server.ask('POST', '/api/v1/tokens', { name: 'nightly', roles: ['operator'], tenant: 'acme' });
  await server.until(failed, (it) => it.status === 'FAILED');
  await server.until(run, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'));
});
after(async () => {
  await closeBrowser();
  await server.stop();
});

const PAGES = () => [
  ['#/runs', 'Runs'],
  [`#/runs/${run}`, 'booking'],
  [`#/runs/${run}?step=hotel&at=8`, 'booking'],
  [`#/runs/${failed}`, 'booking'],
  ...['timeline', 'events', 'logs', 'state', 'compensation', 'evidence'].map((tab) => [`#/runs/${failed}?tab=${tab}&step=newsletter`, 'booking']),
  ['#/inbox', 'Inbox'],
  ['#/definitions', 'Definitions'],
  ['#/definitions/pay-out', 'pay-out'],
  ['#/definitions/pay-out?tab=source', 'pay-out'],
  ['#/definitions?new=1', 'New definition'],
  ['#/schedules?name=nightly', 'Schedules'],
  ['#/webhooks?name=hook', 'Webhooks'],
  ['#/sources?name=orders', 'Sources'],
  ['#/queue', 'Queue and workers'],
  ['#/outbox', 'Outbox'],
  ['#/alerts', 'Alerts'],
  ['#/audit', 'Audit log'],
  ['#/tokens', 'Tokens'],
  ['#/errors/SHELL_EXIT', 'SHELL_EXIT'],
];

for (const [theme, width] of [['light', 1360], ['dark', 1360], ['light', 375], ['dark', 375]]) {
  test(`axe finds nothing and the policy is kept, ${theme}, ${width} pixels wide`, async () => {
    const page = await open(server, '#/runs', { theme, width, height: width < 600 ? 844 : 850 });
    for (const [hash, title] of PAGES()) {
      await page.evaluate((to) => (location.hash = to), hash);
      await page.getByRole('heading', { name: title, exact: true, level: 1 }).waitFor();
      await page.waitForTimeout(350);
      const found = await inject(page);
      const said = found.map((it) => `${hash}: ${it.id}: ${it.nodes.map((node) => `${node.html} (${node.any.map((any) => any.message).join('; ')})`).slice(0, 3).join(' | ')}`);
      assert.deepEqual(said, []);
      // Nothing is wider than the screen.
      const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      assert.ok(wide <= 0, `${hash} is ${wide} pixels too wide`);
    }
    assert.deepEqual(page.complaints, []);
    await page.done();
  });
}

/** axe comes by the protocol of the browser: the policy of the page lets no other script in. */
async function inject(page) {
  const client = (page.client ??= await page.context().newCDPSession(page));
  await client.send('Runtime.evaluate', { expression: axe });
  const { result, exceptionDetails } = await client.send('Runtime.evaluate', {
    expression: `axe.run(document, { runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa'] }).then((it) => JSON.stringify(it.violations.map((v) => ({ id: v.id, nodes: v.nodes.map((n) => ({ html: n.html.slice(0, 200), any: n.any.map((a) => ({ message: a.message })) })) }))))`,
    awaitPromise: true,
    returnByValue: true,
  });
  if (exceptionDetails) throw new Error(JSON.stringify(exceptionDetails));
  return JSON.parse(result.value);
}

test('the page works under a path of a proxy', async () => {
  const proxy = await proxied(server, '/tools/stepwell');
  const page = await open(server, `#/runs/${run}`, { base: proxy.base });
  await page.getByRole('heading', { name: 'booking' }).waitFor();
  await page.locator('[data-step=hotel][data-word=Succeeded]').waitFor();
  await page.getByRole('status').getByText('Live').waitFor();
  assert.deepEqual(page.complaints, []);
  await page.done();
  proxy.close();
});

test('nothing is loaded from elsewhere, and the policy is strict', async () => {
  const page = await open(server, '#/definitions?new=1');
  const asked = [];
  page.on('request', (request) => asked.push(request.url()));
  await page.reload();
  await page.getByText('can be run').waitFor();
  for (const url of asked) assert.ok(url.startsWith(server.url) || url.startsWith('data:'), url);
  const response = await fetch(server.url);
  const policy = response.headers.get('content-security-policy');
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe/);
  await page.done();
});
