// A whole job in the browser, on the real programs with the real model: from the drop of a file to the answer of the
// adapter. What the form calls "the same on the command line" is held against dexctl too.
import assert from 'node:assert/strict';
import { execFile, spawn } from 'node:child_process';
import { existsSync, mkdirSync, openSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, it } from 'node:test';
import { promisify } from 'node:util';
import { launch, open } from './support/browser.mjs';

const { DEX_BIN: bin, DEX_WEB_ROOT: root, DEX_DEPS_DIR: deps, DEX_TEST_DIR: folder, DEX_WEB_SHOTS: shots } = process.env;
const run = promisify(execFile);
const ready_ms = 120_000,
  trained_ms = 600_000,
  answered_ms = 120_000;
let dexd, browser, endpoints;

before(async () => {
  for (const [name, value] of Object.entries({
    DEX_BIN: bin,
    DEX_WEB_ROOT: root,
    DEX_DEPS_DIR: deps,
    DEX_TEST_DIR: folder,
  }))
    assert.ok(value, `${name} must be set`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  if (shots) mkdirSync(shots, { recursive: true });
  const log = openSync(join(folder, 'dexd.log'), 'w');
  const file = join(folder, 'data/endpoints.json');
  dexd = spawn(
    join(bin, 'dexd'),
    [
      '--data-dir',
      join(folder, 'data'),
      '--grpc-port',
      '0',
      '--http-port',
      '0',
      '--models',
      join(deps, 'models/models.json'),
      '--web-root',
      root,
    ],
    { stdio: ['ignore', log, log] },
  );
  const ended = new Promise((_, reject) =>
    dexd.once('exit', (code) =>
      reject(new Error(`dexd ended with ${code}: ${readFileSync(join(folder, 'dexd.log'), 'utf8').slice(-2000)}`)),
    ),
  );
  ended.catch(() => {});
  const begun = Date.now();
  while (!existsSync(file)) {
    assert.ok(Date.now() - begun < ready_ms, 'dexd is not ready');
    await Promise.race([new Promise((resolve) => setTimeout(resolve, 100)), ended]);
  }
  endpoints = JSON.parse(readFileSync(file, 'utf8'));
  browser = await launch();
});
after(async () => {
  await browser?.close();
  if (dexd && dexd.exitCode === null) {
    const ended = new Promise((resolve) => dexd.once('exit', resolve));
    dexd.kill('SIGTERM');
    await ended;
  }
});

const shot = (page, name) =>
  shots &&
  page.screenshot({
    path: join(shots, `whole-job-${name}.png`),
    fullPage: true,
  });

it('goes from a file to an answer', async () => {
  const url = endpoints.http.startsWith('http') ? endpoints.http : `http://${endpoints.http}`;
  const page = await open(browser, url, '#/jobs/new');

  const rows = readFileSync(join(deps, 'data/code.validation.jsonl'), 'utf8').split('\n').filter(Boolean).slice(0, 60);
  const drop = page.getByLabel('Choose training data');
  await drop.setInputFiles({
    name: 'broken.jsonl',
    mimeType: 'application/jsonl',
    buffer: Buffer.from(`${rows.slice(0, 12).join('\n')}\n{"messages": [{"role": "human", "content": "x"}]}\n`),
  });
  await page.getByText('can’t be used yet').waitFor();
  await page.locator('.finding', { hasText: 'line 13' }).waitFor();
  await shot(page, 'findings');
  await drop.setInputFiles({
    name: 'code.jsonl',
    mimeType: 'application/jsonl',
    buffer: Buffer.from(`${rows.join('\n')}\n`),
  });
  await page.getByText('code.jsonl can be used').waitFor();

  await page.getByLabel('Suffix of the adapter’s id').fill('from-the-browser');
  await page.getByText('How long and how fast it trains').click();
  await page.getByLabel('Or a number of updates').fill('2');
  await page.getByLabel('Tokens a row, at most').fill('64');
  await page.getByLabel('Rows an update').fill('2');
  await page.getByText(/^between /).waitFor();
  await shot(page, 'form');

  const command = (await page.locator('aside .command code').textContent()).replace(/\\\n/g, ' ');
  const { stdout } = await run('/bin/sh', [
    '-c',
    `"${join(bin, 'dexctl')}" --server "${endpoints.grpc}" --output json ${command.replace(/^dexctl/, '')} --dry-run`,
  ]);
  assert.match(stdout, /"total_steps": ?"2"/, 'dexctl understands the command and estimates the same job');

  await page.getByRole('button', { name: 'Start the job' }).click();
  await page.waitForURL(/#\/jobs\/ftjob-/);
  await page.getByText('succeeded').first().waitFor({ timeout: trained_ms });
  await page.getByText('Loss on rows it never saw').waitFor();
  await page.getByText('Held-out loss', { exact: false }).first().waitFor();
  await shot(page, 'done');
  await page.getByRole('tab', { name: 'Heads' }).click();
  await page.getByText(/DEX acts on/).waitFor();
  await page.getByRole('tab', { name: 'Checkpoints' }).click();
  await page.getByText('read back').first().waitFor();
  await page.getByRole('tab', { name: 'Configuration' }).click();
  await page.getByText('hyperparameters.max_steps').waitFor();

  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByLabel('Text to go on from').fill('def read_lines(path):\n');
  await page.getByLabel('Tokens, at most').fill('12');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.getByText(/part at token|All sides gave the same/).waitFor({ timeout: answered_ms });
  assert.match(await page.locator('.side-card.adapted').textContent(), /answered by ft:smollm2-135m-instruct:default:from-the-browser:/);
  assert.match(await page.locator('.side-card.base').textContent(), /answered by smollm2-135m-instruct/);
  await shot(page, 'playground');

  await page.goto(`${url}/#/platform`);
  await page.getByText('What it promises').waitFor();
  await shot(page, 'platform');
  assert.deepEqual(page.complaints, []);
  assert.deepEqual(page.foreign, []);
  await page.context().close();
});
