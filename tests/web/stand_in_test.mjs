// The stand-in must refuse what the gateway would refuse, or the tests of pages prove nothing.
import assert from 'node:assert/strict';
import { after, before, it } from 'node:test';
import { start } from './support/stand_in.mjs';

let gateway;
before(async () => (gateway = await start({ root: process.env.DEX_WEB_ROOT, jobs: 40 })));
after(() => gateway.stop());

const post = (name, body) =>
  fetch(`${gateway.url}/rpc/dex.v1.${name}`, {
    method: 'POST',
    body: JSON.stringify(body),
  });

it('refuses keys, values and methods that the contract does not have', async () => {
  for (const [name, body] of [
    ['FineTuningService/GetFineTuningJob', { identity: 'x' }],
    ['FineTuningService/ListFineTuningJobs', { filter: { states: ['JOB_STATE_TIRED'] } }],
    ['FineTuningService/ListFineTuningJobs', { page_size: 'many' }],
    ['FineTuningService/Forget', {}],
  ]) {
    gateway.faults.length = 0;
    assert.equal((await post(name, body)).status, 400, name);
    assert.equal(gateway.faults.length, 1, `${name} is noted`);
  }
});
it('prints defaults, proto field names, int64 as text and enums by name', async () => {
  const { jobs } = await (await post('FineTuningService/ListFineTuningJobs', { page_size: 1 })).json();
  assert.equal(jobs[0].seed, '4711');
  assert.equal(jobs[0].state, 'JOB_STATE_RUNNING');
  assert.deepEqual(jobs[0].warnings, []);
  assert.equal(jobs[0].fine_tuned_model, '');
  assert.equal(jobs[0].effective_config, undefined);
});
it('pages without losing or repeating one', async () => {
  const seen = [];
  let page_token = '';
  do {
    const page = await (
      await post('FineTuningService/ListFineTuningJobs', {
        page_size: 7,
        page_token,
      })
    ).json();
    seen.push(...page.jobs.map((job) => job.id));
    page_token = page.next_page_token;
  } while (page_token);
  assert.equal(new Set(seen).size, 40);
  assert.deepEqual(seen, [...seen].sort().reverse());
});
it('streams from where a watcher left off, and says when it is over', async () => {
  const job = gateway.world.jobs.find((one) => one.state === 'JOB_STATE_SUCCEEDED');
  const text = await (
    await post('FineTuningService/WatchFineTuningJob', {
      id: job.id,
      after_sequence: '5',
    })
  ).text();
  const events = text
    .split('\n\n')
    .filter((part) => part.startsWith('data: '))
    .map((part) => JSON.parse(part.slice(6)));
  assert.equal(events.find((message) => message.event).event.sequence, '6');
  assert.match(text, /event: end\ndata: \{\}\n\n$/);
  assert.equal((await post('FineTuningService/WatchFineTuningJob', { id: 'ftjob-none' })).status, 404);
});
it('asks for its key, once it has one, of every call', async () => {
  gateway.key = 'dex_right';
  const ask = (authorization) =>
    fetch(`${gateway.url}/rpc/dex.v1.AdminService/WhoAmI`, { method: 'POST', body: '{}', headers: authorization ? { authorization } : {} });
  assert.equal((await ask('')).status, 401);
  assert.equal((await ask('Bearer dex_wrong')).status, 401);
  const answer = await ask('Bearer dex_right');
  gateway.key = '';
  assert.equal((await answer.json()).tenant, 'default');
});
it('moves an alias for who has seen where it points, and keeps what was before', async () => {
  gateway.faults.length = 0;
  const { aliases, adapters } = gateway.world;
  const move = (more) => post('AdapterService/SetAdapterAlias', { alias: 'live', adapter: adapters[1].id, ...more });
  assert.equal((await move({ etag: 'old' })).status, 409);
  assert.equal((await move({ create_only: true })).status, 409);
  const moved = await (await move({ etag: aliases[0].etag })).json();
  assert.deepEqual(
    moved.targets.map((target) => target.adapter),
    [adapters[1].id, ...aliases[0].targets.map((target) => target.adapter)],
  );
  assert.deepEqual(gateway.faults, []);
});
it('serves nothing outside its folder', async () => {
  assert.equal((await fetch(`${gateway.url}/..%2f..%2fpackage.json`)).status, 404);
  assert.equal((await fetch(gateway.url)).headers.get('content-security-policy'), "default-src 'self'");
});
