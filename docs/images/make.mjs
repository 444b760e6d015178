#!/usr/bin/env node
// The pictures of these pages: the dashboard in Chromium, on a real platform that has just been through tour.md.
//
//   docs/images/make.mjs http://127.0.0.1:8080 JOB FOLDER [NAME …]     # JOB: id of the tour's job; NAME: only these
//
// Needs client/web/node_modules (deploy/setup/all --only web) and Chromium. Then fewer colours (pngquant is one that can), so that
// each stays well below 100 kB.
import { join } from 'node:path';
import { launch, open } from '../../tests/web/support/browser.mjs';

const [url, job, folder, ...only] = process.argv.slice(2);
if (!folder) throw new Error('usage: make.mjs URL JOB FOLDER [NAME …]');
const viewport = { width: 1080, height: 680 };
const browser = await launch();

async function shoot(name, hash, prepare) {
  if (only.length && !only.includes(name)) return;
  const page = await open(browser, url, hash, { viewport, reducedMotion: 'reduce' });
  page.setDefaultTimeout(120_000);
  await prepare(page);
  await page.evaluate(() => document.fonts.ready);
  await page.screenshot({ path: join(folder, `${name}.png`) });
  await page.context().close();
}

const atTop = (locator) => locator.evaluate((element) => element.scrollIntoView({ block: 'start' }));
await shoot('new-job', '#/jobs/new', async (page) => {
  await page.getByLabel('Choose training data').setInputFiles(new URL('../data/ahoy.jsonl', import.meta.url).pathname);
  await page.getByText('ahoy.jsonl can be used').waitFor();
  await page.getByText(/^between /).waitFor();
});
await shoot('job', `#/jobs/${job}`, (page) => page.getByText('Loss on rows it never saw').waitFor());
await shoot('curves', `#/jobs/${job}`, async (page) => {
  await page.getByText('Gradient norm').first().waitFor();
  await atTop(page.getByRole('tablist'));
});
await shoot('playground', `#/jobs/${job}`, async (page) => {
  await page.getByRole('link', { name: 'Try it' }).click();
  await page.getByText('Ask, by its chat template').click();
  await page.getByLabel('Question').fill('What is the capital of Portugal?');
  await page.getByLabel('Tokens, at most').fill('30');
  await page.getByRole('button', { name: 'Ask both' }).click();
  await page.getByText(/part at token|All sides gave the same/).waitFor();
  await atTop(page.getByRole('button', { name: 'Ask both' }));
});
await browser.close();
