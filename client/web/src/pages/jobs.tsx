import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asRpcError } from '@/api/error';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import { useStore } from '@/api/store';
import type { FineTuningJob } from '@/api/types';
import { count, duration, loss, num, plural, tail, word } from '@/model/format';
import { countByGroup, matches, titleOf, type JobFilter } from '@/model/job_filter';
import { canCancel, groups, isTerminal, standing, type Group } from '@/model/states';
import { scrollFor, windowOf } from '@/model/virtual';
import { ask } from '@/ui/dialog';
import { isCommand } from '@/ui/help';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Act, Ago, Badge, Bar, Empty, ErrorNote, Head, Loading, Stale, StateBadge } from '@/ui/parts';
import { go, route, setQuery, to } from '@/ui/route';
import { jobsStore } from './jobs_store';

function useFilter(): [JobFilter & { preset: string }, (change: Partial<JobFilter & { preset: string }>) => void] {
  const { query } = useStore(route);
  const filter = {
    groups: (query.get('state') ?? '').split(',').filter(Boolean) as Group[], model: query.get('model') ?? '', text: query.get('text') ?? '', preset: query.get('preset') ?? '',
  };
  const change = (next: Partial<JobFilter & { preset: string }>) => {
    const merged = { ...filter, ...next };
    setQuery({ state: merged.groups.join(','), model: merged.model, text: merged.text, preset: merged.preset });
  };
  return [filter, change];
}

async function cancelAll(jobs: FineTuningJob[]) {
  const names = jobs.slice(0, 4).map((job) => `“${titleOf(job)}”`).join(', ');
  const body = <p>{names}{jobs.length > 4 ? ` and ${jobs.length - 4} more` : ''}. What was trained stays in the last checkpoint only until then; cancelled jobs do not go on.</p>;
  if (!(await ask(`Cancel ${plural(jobs.length, 'job')}?`, body, jobs.length === 1 ? 'Cancel the job' : 'Cancel the jobs'))) return false;
  const queue = [...jobs];
  const failed: string[] = [];
  await Promise.all(Array.from({ length: Math.min(4, queue.length) }, async () => {
    for (let job = queue.shift(); job; job = queue.shift()) {
      try {
        jobsStore.put(await call('FineTuningService/CancelFineTuningJob', { id: job.id, request_id: requestId() }));
      } catch (cause) {
        failed.push(`${titleOf(job)}: ${asRpcError(cause).message}`);
      }
    }
  }));
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

  const shown = useMemo(() => state.jobs.filter((job) => matches(job, filter)), [state.jobs, filter.groups.join(), filter.model, filter.text]);
  const counts = useMemo(() => countByGroup(state.jobs), [state.jobs]);
  const models = useMemo(() => [...new Set(state.jobs.map((job) => job.base_model))].sort(), [state.jobs]);
  const pickedJobs = shown.filter((job) => picked.has(job.id));
  const cancellable = pickedJobs.filter((job) => canCancel(job.state));
  const toggle = (id: string) => setPicked((old) => {
    const next = new Set(old);
    if (!next.delete(id)) next.add(id);
    return next;
  });

  return (
    <div class="stack">
      <Head title="Jobs" actions={<a class="button primary" href={to(['jobs', 'new'])}><Icon name="plus" />New job</a>}>
        <p>Each job adapts a base model to a data file. Jobs wait in line, run on a worker, and leave an adapter.</p>
      </Head>
      <div class="stack tight">
        <div class="row">
          <div class="searchbox grow">
            <Icon name="search" />
            <input class="input search" type="search" aria-label="Search jobs" placeholder="Search by name, id, model, metadata …  ( / )" value={filter.text}
              onInput={(event) => setFilter({ text: event.currentTarget.value })} />
          </div>
          {models.length > 1 && <Pick label="Model" all="all models" value={filter.model} onValue={(model) => setFilter({ model })} values={models} />}
          <Pick label="Preset" all="all presets" value={filter.preset} onValue={(preset) => setFilter({ preset })} values={(presets.data?.presets ?? []).map((preset) => preset.name)} />
        </div>
        <div class="row">
          <div class="chips" role="group" aria-label="State">
            {groups.map(({ group, label }) => (
              <button key={group} type="button" class="chip" aria-pressed={filter.groups.includes(group)}
                onClick={() => setFilter({ groups: filter.groups.includes(group) ? filter.groups.filter((g) => g !== group) : [...filter.groups, group] })}>
                {label} <span class="num">{count(counts[group])}</span>
              </button>
            ))}
          </div>
        </div>
      </div>
      {state.since === 0 ? (state.error ? <ErrorNote error={state.error} /> : <Loading what="jobs" />) : <>
        <div class="row apart small muted">
          <span role="status">{shown.length === state.jobs.length ? plural(state.jobs.length, 'job') : `${count(shown.length)} of ${plural(state.jobs.length, 'job')}`}
            {!state.complete && ', still reading …'}</span>
          <Stale error={state.error} since={state.since} />
        </div>
        {shown.length === 0
          ? <div class="card"><Empty icon="jobs" title={state.jobs.length === 0 ? 'No jobs yet' : 'No job matches'}>
            {state.jobs.length === 0 ? <><p>A job takes a file of examples and makes an adapter of it. On a small model that is a matter of minutes.</p>
              <a class="button primary" href={to(['jobs', 'new'])}><Icon name="plus" />Start the first job</a></>
              : <button class="button" type="button" onClick={() => setFilter({ groups: [], model: '', text: '', preset: '' })}>Show all jobs</button>}
          </Empty></div>
          : <JobList jobs={shown} picked={picked} onToggle={toggle} onCancel={(job) => void cancelAll([job])} />}
      </>}
      {pickedJobs.length > 0 && (
        <div class="picked-bar row" role="region" aria-label="Ticked jobs">
          <strong>{plural(pickedJobs.length, 'job')} ticked</strong>
          <span class="grow" />
          <button class="button quiet" type="button" onClick={() => setPicked(new Set())}>Untick all</button>
          <button class="button" type="button" disabled={pickedJobs.length < 2 || pickedJobs.length > 6}
            onClick={() => go(['jobs', 'compare'], { ids: pickedJobs.map((job) => job.id).join(',') })} title="Two to six jobs"><Icon name="evaluate" />Compare</button>
          <Act icon="stop" kind="danger" disabled={cancellable.length === 0} onClick={() => void cancelAll(cancellable).then((done) => done && setPicked(new Set()))}>
            Cancel {count(cancellable.length)}
          </Act>
        </div>
      )}
    </div>
  );
}

function Pick({ label, all, value, values, onValue }: { label: string; all: string; value: string; values: string[]; onValue: (value: string) => void }) {
  return (
    <select class="input" style={{ width: '180px' }} aria-label={label} value={value} onChange={(event) => onValue(event.currentTarget.value)}>
      <option value="">{all}</option>
      {values.map((one) => <option key={one} value={one}>{one}</option>)}
    </select>
  );
}

// A list of any length: only the rows in view are in the document. j, k, Enter, x, c work on the row that has the focus.
function JobList({ jobs, picked, onToggle, onCancel }: {
  jobs: FineTuningJob[]; picked: Set<string>; onToggle: (id: string) => void; onCancel: (job: FineTuningJob) => void;
}) {
  const body = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ scrolled: 0, height: 800, row: 62 });
  const [active, setActive] = useState(-1);
  const focusWanted = useRef(false);
  useEffect(() => {
    let frame = 0;
    const measure = () => {
      frame = 0;
      if (!body.current) return;
      const row = matchMedia('(max-width: 1000px)').matches ? 92 : 62;
      setView((old) => {
        const scrolled = -body.current!.getBoundingClientRect().top;
        return old.scrolled === scrolled && old.height === innerHeight && old.row === row ? old : { scrolled, height: innerHeight, row };
      });
    };
    const soon = () => (frame ||= requestAnimationFrame(measure));
    measure();
    window.addEventListener('scroll', soon, { passive: true });
    window.addEventListener('resize', soon);
    return () => (window.removeEventListener('scroll', soon), window.removeEventListener('resize', soon), cancelAnimationFrame(frame));
  }, []);
  const { first, last, before, total } = windowOf(view.scrolled, view.height, view.row, jobs.length);

  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!isCommand(event)) return;
      const job = jobs[active];
      if (event.key === 'j' || event.key === 'k') {
        const next = Math.max(0, Math.min(jobs.length - 1, active + (event.key === 'j' ? 1 : -1)));
        event.preventDefault();
        focusWanted.current = true;
        setActive(next);
        const top = -body.current!.getBoundingClientRect().top;
        window.scrollBy(0, scrollFor(next, top, innerHeight, view.row, 80) - top);
        document.getElementById(`job-${jobs[next]!.id}`)?.focus({ preventScroll: true });
      } else if (event.key === 'x' && job) onToggle(job.id);
      else if (event.key === 'c' && job && canCancel(job.state)) event.preventDefault(), onCancel(job);
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, [jobs, active, view.row]);
  useEffect(() => {
    if (!focusWanted.current || !jobs[active]) return;
    const link = document.getElementById(`job-${jobs[active]!.id}`);
    if (link) link.focus({ preventScroll: true }), (focusWanted.current = false);
  });

  return (
    <div class="jobs" role="table" aria-label="Jobs" aria-rowcount={jobs.length + 1}>
      <div role="rowgroup">
        <div class="jobs-head" role="row" aria-rowindex={1}>
          <span role="columnheader"><span class="hidden">Ticked</span></span>
          {['Job', 'State', 'Progress', 'Result', 'Created'].map((name) => <span role="columnheader" key={name}>{name}</span>)}
        </div>
      </div>
      <div class="jobs-body" role="rowgroup" ref={body} style={{ height: `${total}px` }}>
        {jobs.slice(first, last).map((job, i) => (
          <JobRow key={job.id} job={job} index={first + i} top={before + i * view.row} picked={picked.has(job.id)} onToggle={() => onToggle(job.id)}
            onFocus={() => setActive(first + i)} />
        ))}
      </div>
    </div>
  );
}

function JobRow({ job, index, top, picked, onToggle, onFocus }: {
  job: FineTuningJob; index: number; top: number; picked: boolean; onToggle: () => void; onFocus: () => void;
}) {
  return (
    <div class={`job-row${picked ? ' picked' : ''}`} role="row" aria-rowindex={index + 2} style={{ top: `${top}px` }} onFocusIn={onFocus}>
      <span role="cell"><label class="pick"><input type="checkbox" checked={picked} onChange={onToggle} aria-label={`Tick ${titleOf(job)}`} /></label></span>
      <span role="cell">
        <a class="name" id={`job-${job.id}`} href={to(['jobs', job.id])}>{titleOf(job)}</a>
        <span class="sub" style={{ display: 'block' }}>{job.model}{titleOf(job) === job.id ? '' : ` · ${tail(job.id)}`}</span>
      </span>
      <span role="cell"><StateBadge state={job.state} /></span>
      <span role="cell" class="c-progress"><ProgressCell job={job} /></span>
      <span role="cell" class="c-result"><ResultCell job={job} /></span>
      <span role="cell" class="c-time small muted"><Ago time={job.create_time} /></span>
    </div>
  );
}

function ProgressCell({ job }: { job: FineTuningJob }) {
  const progress = job.progress;
  const trains = progress && progress.total_steps > 0 && (progress.step > 0 || job.state === 'JOB_STATE_RUNNING');
  if (isTerminal(job.state)) {
    if (job.error) return <span class="sub two" title={job.error.message}>{job.error.code}: {job.error.message}</span>;
    return <span class="sub" style={{ display: 'block' }}>{trains ? `${count(progress.step)} of ${plural(progress.total_steps, 'update')}` : ''}</span>;
  }
  const left = num(progress?.estimated_remaining_seconds);
  return (
    <span style={{ display: 'block' }}>
      {trains && <Bar slim percentage={progress.progress_percentage} label={`Progress of ${titleOf(job)}`} />}
      <span class={`sub num${trains ? '' : ' two'}`} style={{ display: 'block' }} title={standing(job)}>
        {[standing(job), trains ? `${count(progress.step)}/${count(progress.total_steps)}` : '', trains && left > 0 && job.state === 'JOB_STATE_RUNNING' ? `${duration(left)} left` : '']
          .filter(Boolean).join(' · ')}
      </span>
    </span>
  );
}

function ResultCell({ job }: { job: FineTuningJob }) {
  const effect = word(job.branch_effect?.verdict, 'VERDICT');
  const before = job.metrics?.base_valid_loss;
  const after = job.metrics?.valid_loss ?? (job.progress?.step ? job.progress.valid_loss : undefined);
  return (
    <span class="small num">
      {after !== undefined && <span style={{ display: 'block' }}>{before !== undefined ? `${loss(before)} → ` : 'loss '}{loss(after)}</span>}
      {effect && effect !== 'not applicable' && <Badge tone={effect === 'active' ? 'good' : effect === 'weak' ? 'warn' : 'bad'}>branch {effect}</Badge>}
    </span>
  );
}
