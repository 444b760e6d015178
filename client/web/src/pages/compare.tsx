import { useEffect, useMemo, useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call, stream } from '@/api/rpc';
import { Store } from '@/api/store';
import type { FineTuningJob } from '@/api/types';
import { LineChart, type ChartLine, type Range } from '@/charts/line_chart';
import { flatten, plainValue } from '@/model/flatten';
import { loss, word } from '@/model/format';
import { titleOf } from '@/model/job_filter';
import { JobSeries } from '@/model/series';
import { Empty, ErrorNote, Head, Loading, StateBadge } from '@/ui/parts';
import { to } from '@/ui/route';

const strokes: Pick<ChartLine, 'colour' | 'dash'>[] = [
  { colour: 'accent', dash: [] },
  { colour: 'base', dash: [7, 4] },
  { colour: 'good', dash: [2, 3] },
  { colour: 'warn', dash: [10, 3, 2, 3] },
  { colour: 'muted', dash: [4, 2] },
  { colour: 'accent', dash: [3, 5] },
];

// Held-out loss of two to six jobs on one axis, and the settings that they do not share.
export function ComparePage({ ids }: { ids: string[] }) {
  const jobs = usePoll(`compare ${ids.join()}`, (signal) =>
    Promise.all(ids.map((id) => call('FineTuningService/GetFineTuningJob', { id }, signal))),
  );
  const [series, setSeries] = useState<Map<string, JobSeries>>(new Map());
  const [version, setVersion] = useState(0);
  const zoom = useMemo(() => new Store<Range>(undefined), [ids.join()]);
  useEffect(() => {
    const stop = new AbortController();
    const made = new Map(ids.map((id) => [id, new JobSeries()]));
    setSeries(made);
    for (const id of ids) {
      void stream(
        'FineTuningService/WatchFineTuningJob',
        { id, after_sequence: '0' },
        (messages) => {
          for (const message of messages) if (message.event) made.get(id)!.add(message.event);
          setVersion((n) => n + 1);
        },
        stop.signal,
      ).catch(() => {}); // the curves that came are shown
    }
    return () => stop.abort();
  }, [ids.join()]);
  if (ids.length < 2)
    return (
      <Empty icon="evaluate" title="Nothing to compare">
        <p>
          Tick two to six jobs in <a href={to(['jobs'])}>the list</a>.
        </p>
      </Empty>
    );
  if (!jobs.data) return jobs.error ? <ErrorNote error={jobs.error} retry={jobs.refresh} /> : <Loading what="the jobs" />;
  const list = jobs.data;
  const lines = list.map((job, i): ChartLine => {
    const one = series.get(job.id);
    return {
      label: titleOf(job),
      x: one?.eval_step.view() ?? new Float64Array(0),
      y: one?.valid_loss.view() ?? new Float64Array(0),
      width: 2,
      points: true,
      ...strokes[i % strokes.length]!,
    };
  });
  return (
    <div class="stack">
      <Head title={`${list.length} jobs side by side`}>
        <p>Only jobs on the same held-out rows can be compared by their loss.</p>
      </Head>
      <LineChart
        title="Held-out loss"
        summary={list.map((job) => `${titleOf(job)}: ${loss(job.metrics?.valid_loss ?? job.progress?.valid_loss)}`).join('; ')}
        lines={lines}
        version={version}
        format={(v) => loss(v).slice(0, 6)}
        zoom={zoom}
        sync="compare"
      />
      <Differences jobs={list} />
    </div>
  );
}

function Differences({ jobs }: { jobs: FineTuningJob[] }) {
  const specs = jobs.map((job) => new Map(flatten(job.effective_config?.spec).map(({ path, value }) => [path, plainValue(path, value)])));
  const paths = [...new Set(specs.flatMap((spec) => [...spec.keys()]))]
    .filter((path) => new Set(specs.map((spec) => spec.get(path))).size > 1)
    .sort();
  return (
    <section class="card flush scroll-x" tabIndex={0} aria-label="Results and differing settings">
      <table>
        <thead>
          <tr>
            <th scope="col">What</th>
            {jobs.map((job) => (
              <th scope="col" key={job.id}>
                <a href={to(['jobs', job.id])}>{titleOf(job)}</a>
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          <tr>
            <th scope="row">State</th>
            {jobs.map((job) => (
              <td key={job.id}>
                <StateBadge state={job.state} />
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">Held-out loss, base</th>
            {jobs.map((job) => (
              <td class="num" key={job.id}>
                {loss(job.metrics?.base_valid_loss)}
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">Held-out loss, adapted</th>
            {jobs.map((job) => (
              <td class="num" key={job.id}>
                {loss(job.metrics?.valid_loss)}
              </td>
            ))}
          </tr>
          <tr>
            <th scope="row">Branch</th>
            {jobs.map((job) => (
              <td key={job.id}>{word(job.branch_effect?.verdict, 'VERDICT')}</td>
            ))}
          </tr>
          {paths.map((path) => (
            <tr key={path}>
              <th scope="row">
                <code>{path}</code>
              </th>
              {specs.map((spec, i) => (
                <td class="num wrap-any" key={i}>
                  {spec.get(path) ?? '–'}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
