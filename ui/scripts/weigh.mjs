// Prints how much of the bundle goes over the wire, and fails above the limit.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join, relative } from 'node:path';
import { gzipSync } from 'node:zlib';

const LIMIT = 400_000;
const folder = process.argv[2];
const files = [];
const walk = (path) => {
  for (const name of readdirSync(path).sort()) {
    const full = join(path, name);
    if (statSync(full).isDirectory()) walk(full);
    else files.push(full);
  }
};
walk(folder);
let total = 0;
for (const file of files) {
  const bytes = readFileSync(file);
  const packed = gzipSync(bytes, { level: 6 }).length;
  total += packed;
  console.log(`ui: ${relative(folder, file).padEnd(28)} ${String(bytes.length).padStart(8)} bytes, ${String(packed).padStart(7)} after gzip`);
}
console.log(`ui: ${total} bytes after gzip in all, ${LIMIT} are allowed`);
process.exit(total > LIMIT ? 1 : 0);
