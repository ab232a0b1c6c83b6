// Screenshots of every page, light and dark, on a desktop and on a phone, into docs/images.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { readFileSync } from 'node:fs';
import { Redis } from '../tests/redis.mjs';
import { APPROVAL, closeBrowser, FAILS_ONCE, open, SAGA, Served } from '../tests/support.mjs';

const OUT = process.env.STEPWELL_IMAGES ?? '../docs/images';
mkdirSync(OUT, { recursive: true });
const example = (path) => readFileSync(join('..', 'examples', path), 'utf8');
const welcome = (name) => readFileSync(`src/welcome/${name}.yaml`, 'utf8');

const empty = await new Served().start();
const server = await new Served().start();
const act = (name) => ({ 'stepwell-actor': name });
for (const [text, file] of [[APPROVAL, 'pay-out.yaml'], [welcome('hello'), 'hello.yaml'], [welcome('rollback'), 'rollback.yaml'], [example('dag/customer-onboarding.yaml'), 'customer-onboarding.yaml'], [example('actions/onboarding.yaml'), 'onboarding.yaml'], [example('playbook/error-routing.yaml'), 'error-routing.yaml'], [FAILS_ONCE(server.folder), 'fails-once.yaml']]) await server.register(text, file);
await server.register(APPROVAL.replace('version: 1', 'version: 2').replace('name: Pay out', 'name: Pay out with two steps'), 'pay-out.yaml');
await server.ask('PUT', '/api/v1/schedules/nightly-greeting', { cron: '0 2 * * *', definition: 'hello-loop', timezone: 'Europe/Berlin' }, act('grace'));
await server.ask('PUT', '/api/v1/schedules/every-minute', { cron: '* * * * *', definition: 'hello-loop', overlap: 'skip' }, act('grace'));
const start = async (body, who) => (await server.ask('POST', '/api/v1/runs', body, act(who))).runId;
const runs = {};
runs.rollback = await start({ definition: { name: 'trip-without-car' }, labels: { team: 'travel' } }, 'ada');
runs.hello = await start({ definition: { name: 'hello-loop' }, labels: { team: 'blue' } }, 'grace');
runs.approval = await start({ definition: { name: 'pay-out' } }, 'ada');
runs.saga = await start({ definition: { text: SAGA } }, 'ada');
runs.held = await start({ definition: { name: 'fails-once' } }, 'otto');
runs.onboarding = await start({ definition: { name: 'employee-onboarding' }, params: { name: 'Radia', email: 'radia@example.com', roles: ['reader'] } }, 'ada');
runs.routing = await start({ definition: { name: 'error-routing' } }, 'otto');
for (let i = 0; i < 14; i++) await start({ definition: { name: ['hello-loop', 'pay-out', 'fails-once'][i % 3] }, labels: { team: i % 2 ? 'blue' : 'green' } }, ['ada', 'otto', 'grace'][i % 3]);
runs.event = await start({ definition: { text: example('linear/payment.yaml').replace('  - stepType: SUBMIT\n    timeout: 30s\n', '  - stepType: SUBMIT\n    tool: { kind: noop }\n    timeout: 30s\n') }, params: { paymentId: 'pay-4711', amount: 25 } }, 'grace');
await server.ask('POST', '/api/v1/tokens', { name: 'nightly', roles: ['operator'], tenant: 'acme' }, act('ada'));
await server.ask('POST', '/api/v1/tokens', { name: 'ada', roles: ['admin'] }, act('ada'));
await server.ask('PUT', '/api/v1/webhooks/github', { target: { start: { definition: 'hello-loop', params: { greeting: 'Hello from GitHub' } } }, signature: { github: {} }, secret: '${secret:HOOK}', headers: ['X-GitHub-Event'] }, act('grace'));
await server.ask('PUT', '/api/v1/webhooks/payments', { target: { event: { type: 'payment.done', keyFrom: '/order/id' } }, signature: { stripe: { windowSeconds: 300 } }, secret: '${secret:HOOK}', enabled: false }, act('ada'));
await server.ask('PUT', '/api/v1/sinks/warehouse', { address: 'webhook:http://127.0.0.1:9/events' }, act('ada')).catch(() => undefined);
const redis = Redis.isThere() ? await new Redis().start() : undefined;
if (redis) {
  await server.ask('PUT', '/api/v1/sources/orders', { address: `redis://127.0.0.1:${redis.port}/?stream=orders`, target: { start: { definition: 'hello-loop', params: { greeting: 'Hello, customer' } } }, maxBody: 65536 }, act('ada'));
  for (const [id, data] of [['o-1', '{"people":["Ada"]}'], ['o-2', '{"people":["Grace"]}'], ['o-2', '{"people":["Grace"]}'], ['o-3', 'x'.repeat(70_000)]]) redis.ask('XADD', 'orders', '*', 'id', id, 'data', data);
}
await server.ask('PUT', '/api/v1/sources/payments', { address: 'nats://127.0.0.1:9/PAYMENTS', target: { event: { type: 'payment.done', keyFrom: '/order/id' } } }, act('grace'));
await server.ask('PUT', '/api/v1/sources/returns', { address: 'amqp://127.0.0.1:9/?queue=returns', target: { event: { type: 'order.returned' } }, enabled: false }, act('grace'));
for (const parcel of ['p-1', 'p-2']) await start({ definition: { text: 'workflowType: parcels\nworkflowVersion: 1\nsteps:\n  - {stepType: SHIP}\n' }, params: { parcel }, labels: { team: 'blue' } }, 'otto');
const burning = await start({ definition: { text: SAGA } }, 'ada');
await server.until(burning, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'), 60_000);
await server.ask('POST', `/api/v1/runs/${burning}/signals`, { signalType: 'EMERGENCY_STOP', reason: 'the hotel is on fire', payload: { reason: 'the hotel is on fire' } }, act('ada'));
await server.until(runs.rollback, (it) => it.status === 'FAILED', 60_000);
await server.until(runs.hello, (it) => it.status === 'COMPLETED', 60_000);
await server.until(runs.saga, (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside'), 60_000);
const busy = await start({ definition: { name: 'hello-loop' }, params: { people: Array.from({ length: 40 }, (_, i) => `Person ${i}`) } }, 'grace');
await new Promise((done) => setTimeout(done, 4000));

const PAGES = [
  ['welcome', '', empty],
  ['runs', '#/runs'],
  ['runs-held', '#/runs?held=1'],
  ['runs-bulk', '#/runs', server, async (page) => { for (const box of (await page.getByRole('checkbox', { name: /^Select run_/ }).all()).slice(0, 8)) await box.check(); await page.getByRole('button', { name: 'Pause', exact: true }).click(); await page.getByTestId('bulk-says').waitFor(); }],
  ['run-graph', `#/runs/${busy}?step=greet`],
  ['run-guards', `#/runs/${runs.routing}`],
  ['run-failed', `#/runs/${runs.rollback}?step=car`],
  ['run-waits', `#/runs/${runs.onboarding}`],
  ['run-timeline', `#/runs/${runs.rollback}?tab=timeline`],
  ['run-events', `#/runs/${runs.rollback}?tab=events&event=11`],
  ['run-logs', `#/runs/${runs.rollback}?tab=logs&step=car`],
  ['run-state', `#/runs/${runs.hello}?tab=state`],
  ['run-compensation', `#/runs/${runs.rollback}?tab=compensation`],
  ['run-evidence', `#/runs/${runs.rollback}?tab=evidence`],
  ['run-time-travel', `#/runs/${runs.rollback}?at=9`],
  ['run-cancel', `#/runs/${runs.saga}`, server, async (page) => { await page.getByRole('button', { name: 'Cancel' }).click(); await page.getByTestId('undo-preview').getByText('Would be undone').waitFor(); }],
  ['run-held', `#/runs/${runs.held}`],
  ['inbox', '#/inbox'],
  ['definitions', '#/definitions'],
  ['definition', '#/definitions/customer-onboarding'],
  ['definition-changes', '#/definitions/pay-out?tab=diff'],
  ['editor', '#/definitions/error-routing?edit=1'],
  ['start', '#/definitions/hello-loop', server, async (page) => { await page.getByRole('button', { name: 'Start a run' }).click(); await page.getByLabel('greeting').waitFor(); }],
  ['schedules', '#/schedules?name=every-minute'],
  ['webhooks', '#/webhooks?name=github'],
  ['sources', '#/sources?name=payments'],
  ['queue', '#/queue'],
  ['outbox', '#/outbox'],
  ['alerts', '#/alerts'],
  ['audit', '#/audit'],
  ['tokens', '#/tokens'],
  ['error', '#/errors/SHELL_EXIT'],
];
const only = process.argv[2];
const SIZES = [['desktop', 1360, 850], ['phone', 390, 844]];
for (const [name, hash, of = server, then] of PAGES) {
  if (only && !name.startsWith(only)) continue;
  for (const [size, width, height] of SIZES) {
    for (const theme of ['light', 'dark']) {
      const page = await open(of, hash, { theme, width, height, actor: 'bob' });
      await page.getByRole('heading', { level: 1 }).first().waitFor();
      await page.waitForTimeout(700);
      if (then) await then(page);
      await page.waitForTimeout(300);
      await page.screenshot({ path: join(OUT, `${name}-${size}-${theme}.png`) });
      if (page.complaints.length) console.log(`${name}: ${page.complaints.join('; ')}`);
      await page.done();
    }
  }
  console.log(`screenshots: ${name}`);
}
// The servers do not keep this program running, so something else must until they have ended.
const running = setInterval(() => {}, 1_000);
await closeBrowser();
await redis?.stop();
await empty.stop();
await server.stop();
clearInterval(running);
