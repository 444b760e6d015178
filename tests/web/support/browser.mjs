// Debian's Chromium, driven by playwright-core. DEX_CHROMIUM names another one.
import { existsSync } from 'node:fs';
import { need } from './modules.mjs';

const { chromium } = need('playwright-core');

export const program = [process.env.DEX_CHROMIUM, '/usr/bin/chromium', '/usr/bin/chromium-browser'].find(
  (path) => path && existsSync(path),
);

export async function launch() {
  if (!program) throw new Error('no Chromium: apt-get install chromium, or name one in DEX_CHROMIUM');
  return chromium.launch({
    executablePath: program,
    args: ['--no-sandbox', '--disable-dev-shm-usage', '--disable-gpu-watchdog', '--force-color-profile=srgb'],
  });
}

// For whatever a page is waited for: machines that build and test at once are slow.
const patience_ms = 90_000;

export const desktop = { width: 1360, height: 900 };
export const phone = { width: 320, height: 640 };

// A page on the dashboard at `hash`. What the page complains about is collected in `complaints`: scripts' errors, and
// what its Content-Security-Policy or the network has refused.
export async function open(browser, url, hash = '', { viewport = desktop, theme = 'light', reducedMotion = 'no-preference' } = {}) {
  const context = await browser.newContext({
    viewport,
    colorScheme: theme,
    reducedMotion,
    deviceScaleFactor: viewport.width < 500 ? 2 : 1,
  });
  const page = await context.newPage();
  page.setDefaultTimeout(patience_ms);
  page.complaints = [];
  page.foreign = [];
  page.on('pageerror', (error) => page.complaints.push(String(error)));
  page.on('console', (message) => message.type() === 'error' && page.complaints.push(message.text()));
  page.on(
    'request',
    (request) => !request.url().startsWith(url) && !/^(blob|data|about):/.test(request.url()) && page.foreign.push(request.url()),
  );
  await page.goto(`${url}/${hash}`);
  return page;
}
