// Builds the dashboard into DEX_WEB_OUT (build/web): types from proto/, the bundle, and beside every text a .gz that the
// gateway hands out as it is.
import { execFileSync } from 'node:child_process';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';
import { build } from 'vite';

const here = join(dirname(fileURLToPath(import.meta.url)), '..');
process.chdir(here);
execFileSync(process.execPath, [join(here, 'scripts/generate_types.mjs')], { stdio: 'inherit' });
await build({ logLevel: 'warn' });

const out = process.env.DEX_WEB_OUT ?? join(here, '../../build/web');
for (const entry of readdirSync(out, { recursive: true, withFileTypes: true })) {
  if (!entry.isFile() || !/\.(html|js|css|svg)$/.test(entry.name)) continue;
  const file = join(entry.parentPath ?? entry.path, entry.name);
  writeFileSync(`${file}.gz`, gzipSync(readFileSync(file), { level: 9 }));
}
