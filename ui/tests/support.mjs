// What the tests of the browser share: a real server on a store of its own, a real browser, and requests beside it.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request as plainRequest } from 'node:http';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

export const BIN = process.env.STEPWELL_BIN ?? '../target/debug/stepwell';
/** A folder with a built bundle that is served instead of that of the binary: a change of the sources is tried without a build of the server. */
const BUNDLE = process.env.STEPWELL_UI_BUNDLE;
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];

/** What signs the deliveries to webhooks: `${secret:HOOK}`. */
export const HOOK_SECRET = 'the secret of the hook';
/** Sinks on this machine may be delivered to. */
const CONFIG = '[security.network]\nopen = ["loopback"]\n';

/** The servers that are running: they end with the tests. */
const alive = new Set();
process.on('exit', () => alive.forEach((child) => child.kill('SIGKILL')));

/** A `stepwell serve` that ends with the test. */
export class Served {
  constructor(args = [], folder, { bin = BIN, config = '' } = {}) {
    this.bin = bin;
    this.config = config;
    this.folder = folder ?? mkdtempSync(join(tmpdir(), 'stepwell-ui-'));
    this.args = args;
    this.port = 0;
    this.network = CONFIG;
  }
  async start() {
    writeFileSync(join(this.folder, 'stepwell.toml'), this.network + this.config);
    const child = spawn(this.bin, ['serve', '--listen', `127.0.0.1:${this.port}`, '--store', join(this.folder, 'stepwell.db'), ...this.args], { cwd: this.folder, stdio: ['ignore', 'ignore', 'pipe'], env: { ...process.env, STEPWELL_STORE: '', STEPWELL_CONFIG: '', STEPWELL_SECRET_HOOK: HOOK_SECRET } });
    this.child = child;
    alive.add(child);
    child.once('exit', () => alive.delete(child));
    this.url = await new Promise((done, failed) => {
      let text = '';
      child.stderr.on('data', (bytes) => {
        text += bytes;
        const found = /serving on (http:\/\/\S+)/.exec(text);
        if (found) done(found[1].trim());
      });
      child.on('exit', (code) => failed(new Error(`the server ended with ${code}: ${text}`)));
    });
    // A test that has failed does not stop its server: it must not keep the others from being told.
    child.unref();
    child.stderr.unref();
    this.port = Number(new URL(this.url).port);
    if (BUNDLE) {
      this.front ??= await proxied(this, '', BUNDLE);
      this.url = this.front.base;
    }
    return this;
  }
  /** Ends the server at once, as a crash does. */
  async kill() {
    const gone = new Promise((done) => this.child.once('exit', done));
    this.child.kill('SIGKILL');
    await gone;
  }
  async stop() {
    if (this.child.exitCode === null && this.child.signalCode === null) await this.kill();
    this.front?.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
  async ask(method, path, body, headers = {}) {
    const response = await fetch(this.url + path, { method, headers: { ...(body ? { 'content-type': 'application/json' } : {}), ...headers }, body: body ? JSON.stringify(body) : undefined });
    const text = await response.text();
    if (!response.ok) throw new Error(`${method} ${path}: ${response.status} ${text}`);
    return text ? JSON.parse(text) : undefined;
  }
  register(text, file) {
    return this.ask('POST', '/api/v1/definitions', { text, file });
  }
  async run(definition, params = {}, extra = {}) {
    return (await this.ask('POST', '/api/v1/runs', { definition, params, ...extra })).runId;
  }
  async until(run, test, ms = 30_000) {
    for (const end = Date.now() + ms; Date.now() < end; ) {
      const view = await this.ask('GET', `/api/v1/runs/${run}`);
      if (test(view)) return view;
      await new Promise((done) => setTimeout(done, 100));
    }
    throw new Error(`the run ${run} did not come so far`);
  }
}

let shared;
export async function browser() {
  shared ??= await chromium.launch({ executablePath: executable(), headless: true, args: FLAGS });
  return shared;
}
function executable() {
  const named = process.env.STEPWELL_CHROMIUM ?? 'chromium';
  return named.includes('/') ? named : `/usr/bin/${named}`;
}
export async function closeBrowser() {
  await shared?.close();
  shared = undefined;
}

/** A page, with everything that it complains about: a policy that was broken, an error of a script. */
export async function open(server, hash = '#/runs', { theme = 'light', width = 1360, height = 850, actor, role, base } = {}) {
  const context = await (await browser()).newContext({ viewport: { width, height }, colorScheme: theme, timezoneId: 'Europe/Berlin', locale: 'en-GB', reducedMotion: 'reduce' });
  const page = await context.newPage();
  page.setDefaultTimeout(15_000);
  page.complaints = [];
  page.on('console', (message) => {
    if (message.type() === 'error' && !/Failed to load resource|net::ERR/.test(message.text())) page.complaints.push(message.text());
  });
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  if (actor || role)
    await context.addInitScript(([name, roles]) => {
      if (name) localStorage.setItem('stepwell-actor', name);
      if (roles) localStorage.setItem('stepwell-role', roles);
    }, [actor, role]);
  await page.goto(`${base ?? server.url}/${hash}`);
  page.done = () => context.close();
  return page;
}

/** The state of the run that the page shows. */
export const state = (page) => page.getByTestId('state');
/** Nothing was complained about. */
export const calm = (page) => assert.deepEqual(page.complaints, []);
/** A button of the dialog. */
export const button = (page, name) => page.getByRole('dialog').getByRole('button', { name, exact: true });
/** The refusal in a dialog: its code leads to its page. */
export async function refused(page, code, words) {
  const alert = page.getByRole('dialog').getByRole('alert');
  await alert.getByText(words).waitFor();
  assert.equal(await alert.getByRole('link').first().textContent(), code);
  assert.equal(await alert.getByRole('link').first().getAttribute('href'), `#/errors/${code}`);
}

const KINDS = { html: 'text/html; charset=utf-8', js: 'text/javascript; charset=utf-8', css: 'text/css; charset=utf-8', svg: 'image/svg+xml', woff2: 'font/woff2' };

/** A proxy that gives the server a path: `/deep/path/…`. With a bundle its files are served instead of those of the server. */
export async function proxied(server, prefix, bundle) {
  const port = server.port;
  const proxy = createServer((request, response) => {
    if (!request.url.startsWith(`${prefix}/`)) {
      response.writeHead(404).end('not here');
      return;
    }
    const path = request.url.slice(prefix.length);
    const file = bundle && join(bundle, path === '/' ? 'index.html' : path.split('?')[0]);
    const own = file && existsSync(file) ? { 'content-type': KINDS[file.split('.').pop()], bytes: readFileSync(file) } : undefined;
    const origin = `http://127.0.0.1:${port}`;
    // The policy is that of the server, also for files that come from elsewhere.
    const sent = plainRequest({ host: '127.0.0.1', port, method: request.method, path: own ? '/' : path, headers: { ...request.headers, host: `127.0.0.1:${port}`, ...(own ? { 'accept-encoding': 'identity', 'if-none-match': '' } : {}), ...(request.headers.origin ? { origin } : {}) } }, (answer) => {
      if (own) {
        answer.resume();
        const { 'content-security-policy': policy } = answer.headers;
        response.writeHead(200, { 'content-type': own['content-type'], 'content-security-policy': policy ?? '' }).end(own.bytes);
        return;
      }
      response.writeHead(answer.statusCode, answer.headers).flushHeaders();
      answer.pipe(response);
      answer.on('aborted', () => response.destroy());
    });
    sent.on('error', () => response.destroy());
    response.on('close', () => sent.destroy());
    request.pipe(sent);
  });
  await new Promise((done) => proxy.listen(0, '127.0.0.1', done));
  return { base: `http://127.0.0.1:${proxy.address().port}${prefix}`, close: () => (proxy.closeAllConnections(), proxy.close()) };
}

export const GREETS = `apiVersion: noetl.io/v2
kind: Playbook
metadata: { name: greets }
workload: { greeting: Hello, times: 1, loud: false }
workflow:
  - step: greet
    tool: { kind: shell, cmds: ["echo {{ workload.greeting }}"] }
`;

export const FAILS_ONCE = (folder) => `metadata:
  planId: fails-once
  planVersion: 1.0.0
  schemaVersion: v1.2
  requiresCapabilities: [basic-execution]
  fallbackBehavior: reject
  onStepFailure: hold
  holdTimeout: 1h
steps:
  - stepId: prepare
    tool: { kind: shell, cmds: ["echo preparing"] }
  - stepId: deliver
    tool:
      kind: shell
      cmds: ["echo looking for the parcel; test -f ${folder}/parcel || { echo the parcel is not there >&2; exit 3; }"]
  - stepId: thank
    tool: { kind: noop }
`;

export const APPROVAL = `schemaVersion: 1
workflowId: pay-out
workspaceId: demo
name: Pay out
version: 1
active: true
executionTier: Auto
actions:
  - { actionId: check, order: 1, portFamily: demo, operation: "receipt:check", tool: { kind: noop } }
  - actionId: approve-payment
    order: 2
    portFamily: demo
    operation: "money:pay"
    executionTierOverride: HumanApprove
    separationOfDuties: [MakerChecker]
    tool: { kind: noop }
`;

export const SAGA = `schemaVersion: 1
workflowId: booking
workspaceId: demo
name: Booking
version: 1
active: true
executionTier: Auto
actions:
  - actionId: flight
    order: 1
    portFamily: demo
    operation: "flight:book"
    tool: { kind: noop }
    compensation: { compensationOperation: "flight:cancel", compensationInput: { what: flight }, tool: { kind: noop } }
  - actionId: hotel
    order: 2
    portFamily: demo
    operation: "hotel:book"
    tool: { kind: noop }
    compensation: { compensationOperation: "hotel:cancel", compensationInput: { what: hotel }, tool: { kind: noop } }
  - { actionId: newsletter, order: 3, portFamily: demo, operation: "mail:send", sideEffecting: true, tool: { kind: noop } }
  - { actionId: wait-for-guest, order: 4, portFamily: demo, operation: "guest:arrive", executionTierOverride: ManualOnly }
`;

/** The panel that says what a run waits for. */
export const waits = (page) => page.getByTestId('waits');
/** Whether a run waits for somebody or something outside. */
export const forPerson = (it) => it.ext.waitsFor.some((reason) => reason.kind === 'outside');
/** The text of a plan. */
export const plan = (name, steps, more = '') => `metadata:
  planId: ${name}
  planVersion: 1.0.0
  schemaVersion: v1.2
  requiresCapabilities: [basic-execution]
  fallbackBehavior: reject
${more}steps:
${steps}`;
