import { useEffect, useMemo, useState } from 'preact/hooks';
import { asRpcError } from '@/api/error';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import { useStore } from '@/api/store';
import type { FineTuningJob } from '@/api/types';
import { count, plural } from '@/model/format';
import { countByGroup, matches, titleOf, type JobFilter } from '@/model/job_filter';
import { canCancel, groups, type Group } from '@/model/states';
import { ask } from '@/ui/dialog';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Act, Empty, ErrorNote, Head, Loading, Stale } from '@/ui/parts';
import { go, route, setQuery, to } from '@/ui/route';
import { jobsStore } from './jobs_store';
import { JobList } from './job_list';

function useFilter(): [JobFilter & { preset: string }, (change: Partial<JobFilter & { preset: string }>) => void] {
  const { query } = useStore(route);
  const filter = {
    groups: (query.get('state') ?? '').split(',').filter(Boolean) as Group[],
    model: query.get('model') ?? '',
    text: query.get('text') ?? '',
    preset: query.get('preset') ?? '',
  };
  const change = (next: Partial<JobFilter & { preset: string }>) => {
    const merged = { ...filter, ...next };
    setQuery({ state: merged.groups.join(','), model: merged.model, text: merged.text, preset: merged.preset });
  };
  return [filter, change];
}

async function cancelAll(jobs: FineTuningJob[]) {
  const names = jobs
    .slice(0, 4)
    .map((job) => `“${titleOf(job)}”`)
    .join(', ');
  const body = (
    <p>
      {names}
      {jobs.length > 4 ? ` and ${jobs.length - 4} more` : ''}. What was trained stays in the last checkpoint only until then; cancelled jobs
      do not go on.
    </p>
  );
  if (!(await ask(`Cancel ${plural(jobs.length, 'job')}?`, body, jobs.length === 1 ? 'Cancel the job' : 'Cancel the jobs'))) return false;
  const queue = [...jobs];
  const failed: string[] = [];
  await Promise.all(
    Array.from({ length: Math.min(4, queue.length) }, async () => {
      for (let job = queue.shift(); job; job = queue.shift()) {
        try {
          jobsStore.put(await call('FineTuningService/CancelFineTuningJob', { id: job.id, request_id: requestId() }));
        } catch (cause) {
          failed.push(`${titleOf(job)}: ${asRpcError(cause).message}`);
        }
      }
    }),
  );
  if (failed.length > 0) say(`${plural(failed.length, 'job')} could not be cancelled. ${failed[0]}`, 'bad');
  else say(`${plural(jobs.length, 'job')} cancelled.`);
  return true;
}

export function JobsPage() {
  const [filter, setFilter] = useFilter();
  const state = useStore(jobsStore.state);
  const presets = usePoll('presets', (signal) => call('ModelService/ListPresets', {}, signal));
  const [picked, setPicked] = useState<Set<string>>(new Set());
  useEffect(() => jobsStore.use(filter.preset), [filter.preset]);

  const shown = useMemo(
    () => state.jobs.filter((job) => matches(job, filter)),
    [state.jobs, filter.groups.join(), filter.model, filter.text],
  );
  const counts = useMemo(() => countByGroup(state.jobs), [state.jobs]);
  const models = useMemo(() => [...new Set(state.jobs.map((job) => job.base_model))].sort(), [state.jobs]);
  const pickedJobs = shown.filter((job) => picked.has(job.id));
  const cancellable = pickedJobs.filter((job) => canCancel(job.state));
  const toggle = (id: string) =>
    setPicked((old) => {
      const next = new Set(old);
      if (!next.delete(id)) next.add(id);
      return next;
    });

  return (
    <div class="stack">
      <Head
        title="Jobs"
        actions={
          <a class="button primary" href={to(['jobs', 'new'])}>
            <Icon name="plus" />
            New job
          </a>
        }
      >
        <p>Each job adapts a base model to a data file. Jobs wait in line, run on a worker, and leave an adapter.</p>
      </Head>
      <div class="stack tight">
        <div class="row">
          <div class="searchbox grow">
            <Icon name="search" />
            <input
              class="input search"
              type="search"
              aria-label="Search jobs"
              placeholder="Search by name, id, model, metadata …  ( / )"
              value={filter.text}
              onInput={(event) => setFilter({ text: event.currentTarget.value })}
            />
          </div>
          {models.length > 1 && (
            <Pick label="Model" all="all models" value={filter.model} onValue={(model) => setFilter({ model })} values={models} />
          )}
          <Pick
            label="Preset"
            all="all presets"
            value={filter.preset}
            onValue={(preset) => setFilter({ preset })}
            values={(presets.data?.presets ?? []).map((preset) => preset.name)}
          />
        </div>
        <div class="row">
          <div class="chips" role="group" aria-label="State">
            {groups.map(({ group, label }) => (
              <button
                key={group}
                type="button"
                class="chip"
                aria-pressed={filter.groups.includes(group)}
                onClick={() =>
                  setFilter({
                    groups: filter.groups.includes(group) ? filter.groups.filter((g) => g !== group) : [...filter.groups, group],
                  })
                }
              >
                {label} <span class="num">{count(counts[group])}</span>
              </button>
            ))}
          </div>
        </div>
      </div>
      {state.since === 0 ? (
        state.error ? (
          <ErrorNote error={state.error} />
        ) : (
          <Loading what="jobs" />
        )
      ) : (
        <>
          <div class="row apart small muted">
            <span role="status">
              {shown.length === state.jobs.length
                ? plural(state.jobs.length, 'job')
                : `${count(shown.length)} of ${plural(state.jobs.length, 'job')}`}
              {!state.complete && ', still reading …'}
            </span>
            <Stale error={state.error} since={state.since} />
          </div>
          {shown.length === 0 ? (
            <div class="card">
              <Empty icon="jobs" title={state.jobs.length === 0 ? 'No jobs yet' : 'No job matches'}>
                {state.jobs.length === 0 ? (
                  <>
                    <p>A job takes a file of examples and makes an adapter of it. On a small model that is a matter of minutes.</p>
                    <a class="button primary" href={to(['jobs', 'new'])}>
                      <Icon name="plus" />
                      Start the first job
                    </a>
                  </>
                ) : (
                  <button class="button" type="button" onClick={() => setFilter({ groups: [], model: '', text: '', preset: '' })}>
                    Show all jobs
                  </button>
                )}
              </Empty>
            </div>
          ) : (
            <JobList jobs={shown} picked={picked} onToggle={toggle} onCancel={(job) => void cancelAll([job])} />
          )}
        </>
      )}
      {pickedJobs.length > 0 && (
        <div class="picked-bar row" role="region" aria-label="Ticked jobs">
          <strong>{plural(pickedJobs.length, 'job')} ticked</strong>
          <span class="grow" />
          <button class="button quiet" type="button" onClick={() => setPicked(new Set())}>
            Untick all
          </button>
          <button
            class="button"
            type="button"
            disabled={pickedJobs.length < 2 || pickedJobs.length > 6}
            onClick={() => go(['jobs', 'compare'], { ids: pickedJobs.map((job) => job.id).join(',') })}
            title="Two to six jobs"
          >
            <Icon name="evaluate" />
            Compare
          </button>
          <Act
            icon="stop"
            kind="danger"
            disabled={cancellable.length === 0}
            onClick={() => void cancelAll(cancellable).then((done) => done && setPicked(new Set()))}
          >
            Cancel {count(cancellable.length)}
          </Act>
        </div>
      )}
    </div>
  );
}

function Pick({
  label,
  all,
  value,
  values,
  onValue,
}: {
  label: string;
  all: string;
  value: string;
  values: string[];
  onValue: (value: string) => void;
}) {
  return (
    <select
      class="input"
      style={{ width: '180px' }}
      aria-label={label}
      value={value}
      onChange={(event) => onValue(event.currentTarget.value)}
    >
      <option value="">{all}</option>
      {values.map((one) => (
        <option key={one} value={one}>
          {one}
        </option>
      ))}
    </select>
  );
}
