import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import { count, duration, num } from '@/model/format';
import { titleOf } from '@/model/job_filter';
import { liveStates, standing } from '@/model/states';
import { Icon } from '@/ui/icons';
import { Ago, Bar, ErrorNote, StateBadge } from '@/ui/parts';
import { to } from '@/ui/route';
import { SeverityOf } from './platform';
import { AdapterMarks } from './job_verdict';
import { shortName } from './adapters';

// For someone who has never heard of DEX: what it is, the three steps, and what goes on now.
export function HomePage() {
  const live = usePoll(
    'live jobs',
    (signal) => call('FineTuningService/ListFineTuningJobs', { page_size: 5, filter: { states: liveStates } }, signal),
    5000,
  );
  const adapters = usePoll('newest adapters', (signal) => call('AdapterService/ListAdapters', { page_size: 5 }, signal), 15_000);
  const health = usePoll('health', (signal) => call('AdminService/GetHealth', {}, signal), 15_000);
  const bad = (health.data?.checks ?? []).filter((check) => check.severity !== 'SEVERITY_OK');
  return (
    <div class="stack">
      <section class="hero" aria-labelledby="hero-title">
        <div>
          <h1 id="hero-title">Teach a language model your work, and let it ignore the noise.</h1>
          <p>
            You bring examples. The platform adapts a base model to them with <strong>DEX</strong>: in chosen attention heads it learns what
            is noise, and subtracts it. The result is a small adapter that answers at once, at no extra cost.
          </p>
          <div class="row">
            <a class="button primary" href={to(['jobs', 'new'])}>
              <Icon name="plus" />
              New job
            </a>
            <a class="button" href={to(['playground'])}>
              <Icon name="chat" />
              Talk to a model
            </a>
          </div>
        </div>
        <Picture />
      </section>
      <ol class="steps">
        <li>
          <div class="row">
            <span class="n" aria-hidden="true">
              1
            </span>
            <h2>Bring data</h2>
          </div>
          <p>A file of examples, one a line. Every line is checked while it arrives; all faults come back at once.</p>
          <a href={to(['files'])}>Data files</a>
        </li>
        <li>
          <div class="row">
            <span class="n" aria-hidden="true">
              2
            </span>
            <h2>Train</h2>
          </div>
          <p>Choose a model and a preset. You see time and memory before anything starts, and every curve while it runs.</p>
          <a href={to(['jobs'])}>Jobs</a>
        </li>
        <li>
          <div class="row">
            <span class="n" aria-hidden="true">
              3
            </span>
            <h2>Try and measure</h2>
          </div>
          <p>Base and adapter side by side on your questions, and measured with intervals, so that a gain is a gain.</p>
          <a href={to(['evaluations'])}>Evaluations</a>
        </li>
      </ol>
      <div class="grid wide">
        <section class="card stack tight" aria-label="Running and waiting">
          <div class="row apart">
            <h2>Now</h2>
            <a href={to(['jobs'])}>all jobs</a>
          </div>
          <ErrorNote error={live.data ? undefined : live.error} retry={live.refresh} />
          {live.data?.jobs.length === 0 && <p class="muted">No job runs or waits.</p>}
          {(live.data?.jobs ?? []).map((job) => (
            <div class="stack close" key={job.id}>
              <div class="row apart">
                <a href={to(['jobs', job.id])} class="wrap-any">
                  {titleOf(job)}
                </a>
                <StateBadge state={job.state} />
              </div>
              {job.progress && job.progress.total_steps > 0 && (
                <Bar slim percentage={job.progress.progress_percentage} label={`Progress of ${titleOf(job)}`} />
              )}
              <span class="small muted num">
                {[
                  standing(job),
                  job.progress && num(job.progress.estimated_remaining_seconds) > 0
                    ? `${duration(job.progress.estimated_remaining_seconds)} left`
                    : '',
                ]
                  .filter(Boolean)
                  .join(' · ')}
              </span>
            </div>
          ))}
        </section>
        <div class="stack">
          <section class="card stack tight" aria-label="Newest adapters">
            <div class="row apart">
              <h2>Newest adapters</h2>
              <a href={to(['adapters'])}>all adapters</a>
            </div>
            {adapters.data?.adapters.length === 0 && <p class="muted">None yet.</p>}
            {(adapters.data?.adapters ?? []).map((adapter) => (
              <div class="row apart" key={adapter.id}>
                <span>
                  <a href={to(['adapters', adapter.id])} class="wrap-any">
                    {shortName(adapter.id)}
                  </a>{' '}
                  <span class="small muted">
                    on {adapter.base_model}, <Ago time={adapter.create_time} />
                  </span>
                </span>
                <span class="row">
                  <AdapterMarks promotable={undefined} verdict={adapter.branch_effect?.verdict} />
                </span>
              </div>
            ))}
          </section>
          <section class="card stack tight" aria-label="Platform">
            <div class="row apart">
              <h2>Platform</h2>
              <a href={to(['platform'])}>details</a>
            </div>
            {!health.data ? (
              <p class="muted">{health.error ? health.error.message : 'Looking …'}</p>
            ) : bad.length === 0 ? (
              <p class="row">
                <SeverityOf severity="SEVERITY_OK" />
                {count(health.data.checks.length)} checks, all fine.
              </p>
            ) : (
              bad.slice(0, 4).map((check) => (
                <p class="row" key={check.name}>
                  <SeverityOf severity={check.severity} />
                  <span class="grow">
                    {check.name}: {check.finding}
                  </span>
                </p>
              ))
            )}
          </section>
        </div>
      </div>
    </div>
  );
}

// A head's output, minus what it has learned to be noise, is what goes on.
function Picture() {
  const bars = [
    [14, 46, 0.5],
    [30, 70, 0.75],
    [46, 34, 0.3],
    [62, 58, 0.62],
    [78, 40, 0.42],
  ] as const;
  const column = (x: number, pick: (bar: (typeof bars)[number]) => number, fill: string) =>
    bars.map((bar) => <rect key={bar[0]} x={x + bar[0]} y={96 - pick(bar)} width="11" height={pick(bar)} rx="3" fill={fill} />);
  return (
    <figure>
      <svg
        viewBox="0 0 440 168"
        width="100%"
        role="img"
        aria-label="What a head says, minus lambda times the noise it has learned, is what goes on."
      >
        {column(0, (bar) => bar[1], 'var(--base)')}
        <text x="122" y="78" font-size="30" fill="var(--muted)" text-anchor="middle">
          −
        </text>
        <text x="148" y="76" font-size="22" fill="var(--accent-text)" text-anchor="middle" font-style="italic">
          λ
        </text>
        {column(156, (bar) => bar[1] * (1 - bar[2]) * 0.8, 'var(--warn)')}
        <text x="279" y="78" font-size="30" fill="var(--muted)" text-anchor="middle">
          =
        </text>
        {column(300, (bar) => bar[1] - bar[1] * (1 - bar[2]) * 0.8, 'var(--accent)')}
        <path d="M8 102h92M164 102h92M308 102h92" stroke="var(--line-strong)" stroke-width="1.500" />
        <text x="54" y="126" font-size="13" fill="var(--muted)" text-anchor="middle">
          what a head says
        </text>
        <text x="210" y="126" font-size="13" fill="var(--muted)" text-anchor="middle">
          learned noise
        </text>
        <text x="354" y="126" font-size="13" fill="var(--text)" text-anchor="middle" font-weight="600">
          what goes on
        </text>
        <text x="220" y="156" font-size="12.500" fill="var(--muted)" text-anchor="middle">
          W_K, W_V, W_O and the noise are learned from your rows
        </text>
      </svg>
    </figure>
  );
}
