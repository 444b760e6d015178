import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Health } from '@/api/types';
import { count, short, word } from '@/model/format';
import { titleOf } from '@/model/job_filter';
import { standing } from '@/model/states';
import { Ago, Badge, Command, Empty, ErrorNote, Facts, Head, Loading, Note, Stale } from '@/ui/parts';
import { Tabs } from '@/ui/tabs';
import { setQuery, to } from '@/ui/route';

export function SeverityOf({ severity }: { severity: string }) {
  if (severity === 'SEVERITY_OK')
    return (
      <Badge tone="good" icon="check">
        fine
      </Badge>
    );
  if (severity === 'SEVERITY_WARN')
    return (
      <Badge tone="warn" icon="warn">
        look at it
      </Badge>
    );
  return (
    <Badge tone="bad" icon="cross">
      act
    </Badge>
  );
}

export function PlatformPage({ tab }: { tab: string }) {
  const health = usePoll('health', (signal) => call('AdminService/GetHealth', {}, signal), 10_000);
  return (
    <div class="stack">
      <Head title="Platform">
        <p>Workers, the line of waiting jobs, base models, and what this setting can promise.</p>
      </Head>
      <Stale error={health.error} since={health.since} />
      <Tabs
        label="About the platform"
        current={tab}
        onCurrent={(key) => setQuery({ tab: key })}
        tabs={[
          { key: 'health', label: 'Health', content: () => <HealthTab health={health.data} error={health.error} retry={health.refresh} /> },
          { key: 'queue', label: 'Queue', content: () => <QueueTab /> },
          { key: 'models', label: 'Models', content: () => <ModelsTab /> },
          { key: 'limits', label: 'Limits and version', content: () => <LimitsTab health={health.data} /> },
        ]}
      />
    </div>
  );
}

const topics: Record<string, string> = {
  store: 'Store',
  disk: 'Disk',
  clock: 'Clocks',
  workers: 'Workers',
  models: 'Models',
  gateway: 'Gateway',
};

function HealthTab({
  health,
  error,
  retry,
}: {
  health: Health | undefined;
  error: Parameters<typeof ErrorNote>[0]['error'];
  retry: () => void;
}) {
  if (!health) return error ? <ErrorNote error={error} retry={retry} /> : <Loading what="the platform’s health" />;
  const bad = health.checks.filter((check) => check.severity !== 'SEVERITY_OK');
  const names = [...new Set(['workers', ...health.checks.map((check) => check.topic)])].filter((topic) =>
    health.checks.some((check) => check.topic === topic),
  );
  return (
    <div class="stack">
      {bad.length === 0 ? (
        <Note tone="good">Everything that was looked at is fine.</Note>
      ) : (
        bad.map((check) => (
          <Note tone={check.severity === 'SEVERITY_FAIL' ? 'bad' : 'warn'} key={`${check.topic} ${check.name}`}>
            <p>
              <strong>
                {check.name}: {check.finding}
              </strong>
            </p>
            <p>{check.remedy}</p>
          </Note>
        ))
      )}
      <div class="grid wide">
        {names.map((topic) => (
          <section class="card" key={topic} aria-label={topics[topic] ?? topic}>
            <h2>{topics[topic] ?? topic}</h2>
            <ul class="checks">
              {health.checks
                .filter((check) => check.topic === topic)
                .map((check) => (
                  <li key={check.name}>
                    <div class="row apart">
                      <strong>{check.name}</strong>
                      <SeverityOf severity={check.severity} />
                    </div>
                    <p>{check.finding}</p>
                  </li>
                ))}
            </ul>
          </section>
        ))}
      </div>
      {health.promises.length > 0 && (
        <section class="card" aria-label="Promises">
          <h2>What it promises, as it is set up</h2>
          <ul class="checks">
            {health.promises.map((promise) => (
              <li key={promise.text}>
                <div class="row">
                  <Badge tone={promise.kept ? 'good' : 'warn'} icon={promise.kept ? 'check' : 'warn'}>
                    {promise.kept ? 'kept' : 'not kept'}
                  </Badge>
                  <strong>{promise.text}</strong>
                </div>
                <p>{promise.reason}</p>
              </li>
            ))}
          </ul>
        </section>
      )}
    </div>
  );
}

function QueueTab() {
  const queue = usePoll(
    'queue',
    async (signal) => {
      const list = (states: ('JOB_STATE_QUEUED' | 'JOB_STATE_RUNNING' | 'JOB_STATE_VALIDATING_FILES')[]) =>
        call('FineTuningService/ListFineTuningJobs', { page_size: 500, filter: { states } }, signal);
      const [waiting, running] = await Promise.all([list(['JOB_STATE_QUEUED']), list(['JOB_STATE_RUNNING', 'JOB_STATE_VALIDATING_FILES'])]);
      return { waiting: waiting.jobs.sort((a, b) => (a.queue_position ?? 1e9) - (b.queue_position ?? 1e9)), running: running.jobs };
    },
    4000,
  );
  if (!queue.data) return queue.error ? <ErrorNote error={queue.error} retry={queue.refresh} /> : <Loading what="the queue" />;
  const { waiting, running } = queue.data;
  return (
    <div class="stack">
      <Stale error={queue.error} since={queue.since} />
      <section class="card flush scroll-x" tabIndex={0} aria-label="Running now">
        <table>
          <caption class="hidden">Running now</caption>
          <thead>
            <tr>
              <th scope="col">Running now ({count(running.length)})</th>
              <th scope="col">Worker</th>
              <th scope="col" class="number">
                Done
              </th>
              <th scope="col">Doing</th>
            </tr>
          </thead>
          <tbody>
            {running.map((job) => (
              <tr key={job.id}>
                <th scope="row">
                  <a href={to(['jobs', job.id])}>{titleOf(job)}</a>
                </th>
                <td>
                  <code>{job.worker}</code>
                </td>
                <td class="number">{count(job.progress?.progress_percentage)} %</td>
                <td>{standing(job)}</td>
              </tr>
            ))}
            {running.length === 0 && (
              <tr>
                <td colSpan={4} class="muted">
                  Nothing runs.
                </td>
              </tr>
            )}
          </tbody>
        </table>
      </section>
      <section class="card flush scroll-x" tabIndex={0} aria-label="Waiting">
        {waiting.length === 0 ? (
          <Empty icon="clock" title="Nobody waits">
            <p>A new job would start at once, if a worker has room for it.</p>
          </Empty>
        ) : (
          <table>
            <caption class="hidden">Waiting, in order</caption>
            <thead>
              <tr>
                <th scope="col" class="number">
                  Place
                </th>
                <th scope="col">Waiting ({count(waiting.length)})</th>
                <th scope="col">Model</th>
                <th scope="col">Why</th>
                <th scope="col" class="number">
                  Priority
                </th>
                <th scope="col">Since</th>
              </tr>
            </thead>
            <tbody>
              {waiting.map((job) => (
                <tr key={job.id}>
                  <td class="number">{job.queue_position ?? '–'}</td>
                  <th scope="row">
                    <a href={to(['jobs', job.id])}>{titleOf(job)}</a>
                  </th>
                  <td>{job.base_model}</td>
                  <td>{standing({ ...job, queue_position: undefined })}</td>
                  <td class="number">{job.priority}</td>
                  <td>
                    <Ago time={job.create_time} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        )}
      </section>
    </div>
  );
}

function ModelsTab() {
  const models = usePoll('models', (signal) => call('ModelService/ListModels', {}, signal), 15_000);
  if (!models.data) return models.error ? <ErrorNote error={models.error} retry={models.refresh} /> : <Loading what="the models" />;
  return (
    <div class="grid wide">
      {models.data.models.map((model) => (
        <section class="card stack tight" key={model.name} aria-label={model.name}>
          <div class="row apart">
            <h2>{model.display_name || model.name}</h2>
            {model.served ? (
              <Badge tone="good" icon="check">
                served by {count(model.workers)}
              </Badge>
            ) : (
              <Badge icon="dot">not served now</Badge>
            )}
          </div>
          <Facts
            items={[
              ['Name', <code>{model.name}</code>],
              ['Family', model.family],
              ['Parameters', short(model.parameters)],
              ['Shape', `${model.layers} layers, ${model.query_heads} query and ${model.kv_heads} key/value heads of ${model.head_dim}`],
              ['Context', `${count(model.context_length)} tokens`],
              ['Vocabulary', count(model.vocab_size)],
              ['Served in', word(model.served_dtype, 'SERVED_DTYPE') || '–'],
              ['Licence', model.license],
              ['Languages', model.languages.join(', ') || '–'],
            ]}
          />
        </section>
      ))}
    </div>
  );
}

function LimitsTab({ health }: { health: Health | undefined }) {
  const asked = usePoll('capabilities', (signal) => call('ModelService/GetServerCapabilities', {}, signal));
  if (!asked.data) return asked.error ? <ErrorNote error={asked.error} retry={asked.refresh} /> : <Loading what="limits" />;
  const limits = Object.entries(asked.data.limits).sort();
  return (
    <div class="grid wide">
      <section class="card stack tight" aria-label="Version">
        <h2>Version</h2>
        <Facts
          items={[
            ['Version', asked.data.version],
            ['Commit', <code>{asked.data.commit}</code>],
            ['Methods', asked.data.methods.join(', ')],
            ['Presets', asked.data.presets.join(', ')],
            ['Pools', asked.data.pools.join(', ')],
            ['Server’s clock', health?.server_time ? new Date(health.server_time).toLocaleString('en-GB') : '–'],
          ]}
        />
        <Command text="dexctl doctor" />
      </section>
      <section class="card" aria-label="Limits">
        <h2>Limits</h2>
        <table>
          <tbody>
            {limits.map(([name, value]) => (
              <tr key={name}>
                <th scope="row">{name.replace(/_/g, ' ')}</th>
                <td class="number">{count(value)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </div>
  );
}
