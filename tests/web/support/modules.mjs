// What the dashboard's folder has installed, for tests that lie elsewhere.
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const root = join(dirname(fileURLToPath(import.meta.url)), '../../..');
export const web = join(root, 'client/web');
export const need = createRequire(join(web, 'package.json'));
