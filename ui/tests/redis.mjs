// A real broker beside the server: Redis, as Debian has it (package redis-server).
import { execFileSync, spawn } from 'node:child_process';
import { createServer } from 'node:net';

const pause = (ms) => new Promise((done) => setTimeout(done, ms));
async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}
/** A Redis without a password and without a disk; none where the program is not installed. */
export class Redis {
  static isThere() {
    try {
      execFileSync('redis-server', ['--version']);
      return true;
    } catch {
      return false;
    }
  }
  async start() {
    this.port ??= await freePort();
    this.child = spawn('redis-server', ['--bind', '127.0.0.1', '--port', String(this.port), '--save', '', '--appendonly', 'no'], { stdio: 'ignore' });
    for (const end = Date.now() + 10_000; Date.now() < end; await pause(100)) {
      try {
        if (this.ask('PING') === 'PONG') return this;
      } catch {
        // Not yet.
      }
    }
    throw new Error('redis-server does not answer');
  }
  ask(...words) {
    return execFileSync('redis-cli', ['-p', String(this.port), ...words], { stdio: ['ignore', 'pipe', 'ignore'] }).toString().trim();
  }
  async stop() {
    const gone = new Promise((done) => this.child.once('exit', done));
    this.child.kill('SIGKILL');
    await gone;
  }
}
