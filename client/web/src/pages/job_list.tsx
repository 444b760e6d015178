import { useEffect, useRef, useState } from 'preact/hooks';
import type { FineTuningJob } from '@/api/types';
import { count, duration, loss, num, plural, tail, word } from '@/model/format';
import { titleOf } from '@/model/job_filter';
import { canCancel, isTerminal, standing } from '@/model/states';
import { scrollFor, windowOf } from '@/model/virtual';
import { isCommand } from '@/ui/help';
import { Ago, Badge, Bar, StateBadge } from '@/ui/parts';
import { to } from '@/ui/route';

// A list of any length: only the rows in view are in the document. j, k, Enter, x, c work on the row that has the focus.
export function JobList({
  jobs,
  picked,
  onToggle,
  onCancel,
}: {
  jobs: FineTuningJob[];
  picked: Set<string>;
  onToggle: (id: string) => void;
  onCancel: (job: FineTuningJob) => void;
}) {
  const body = useRef<HTMLDivElement>(null);
  const [view, setView] = useState({ scrolled: 0, height: 800, row: 62 });
  // The row that has the focus. Not state: keys can come faster than the page is drawn.
  const active = useRef(-1);
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

  const focus = () => {
    const job = jobs[active.current];
    const link = focusWanted.current && job ? document.getElementById(`job-${job.id}`) : null;
    if (!link) return;
    focusWanted.current = false;
    link.focus({ preventScroll: true });
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!isCommand(event)) return;
      const job = jobs[active.current];
      if (event.key === 'j' || event.key === 'k') {
        const next = Math.max(0, Math.min(jobs.length - 1, active.current + (event.key === 'j' ? 1 : -1)));
        event.preventDefault();
        active.current = next;
        const top = -body.current!.getBoundingClientRect().top;
        window.scrollBy(0, scrollFor(next, top, innerHeight, view.row, 80) - top);
        focusWanted.current = true;
        focus();
      } else if (event.key === 'x' && job) onToggle(job.id);
      else if (event.key === 'c' && job && canCancel(job.state)) (event.preventDefault(), onCancel(job));
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  }, [jobs, view.row]);
  useEffect(focus); // a row that was out of view is there once it is drawn

  return (
    <div class="jobs" role="table" aria-label="Jobs" aria-rowcount={jobs.length + 1}>
      <div role="rowgroup">
        <div class="jobs-head" role="row" aria-rowindex={1}>
          <span role="columnheader">
            <span class="hidden">Ticked</span>
          </span>
          {['Job', 'State', 'Progress', 'Result', 'Created'].map((name) => (
            <span role="columnheader" key={name}>
              {name}
            </span>
          ))}
        </div>
      </div>
      <div class="jobs-body" role="rowgroup" ref={body} style={{ height: `${total}px` }}>
        {jobs.slice(first, last).map((job, i) => (
          <JobRow
            key={job.id}
            job={job}
            index={first + i}
            top={before + i * view.row}
            picked={picked.has(job.id)}
            onToggle={() => onToggle(job.id)}
            onFocus={() => (active.current = first + i)}
          />
        ))}
      </div>
    </div>
  );
}

function JobRow({
  job,
  index,
  top,
  picked,
  onToggle,
  onFocus,
}: {
  job: FineTuningJob;
  index: number;
  top: number;
  picked: boolean;
  onToggle: () => void;
  onFocus: () => void;
}) {
  return (
    <div class={`job-row${picked ? ' picked' : ''}`} role="row" aria-rowindex={index + 2} style={{ top: `${top}px` }} onFocusIn={onFocus}>
      <span role="cell">
        <label class="pick">
          <input type="checkbox" checked={picked} onChange={onToggle} aria-label={`Tick ${titleOf(job)}`} />
        </label>
      </span>
      <span role="cell">
        <a class="name" id={`job-${job.id}`} href={to(['jobs', job.id])}>
          {titleOf(job)}
        </a>
        <span class="sub" style={{ display: 'block' }}>
          {job.model}
          {titleOf(job) === job.id ? '' : ` · ${tail(job.id)}`}
        </span>
      </span>
      <span role="cell">
        <StateBadge state={job.state} />
      </span>
      <span role="cell" class="c-progress">
        <ProgressCell job={job} />
      </span>
      <span role="cell" class="c-result">
        <ResultCell job={job} />
      </span>
      <span role="cell" class="c-time small muted">
        <Ago time={job.create_time} />
      </span>
    </div>
  );
}

function ProgressCell({ job }: { job: FineTuningJob }) {
  const progress = job.progress;
  const trains = progress && progress.total_steps > 0 && (progress.step > 0 || job.state === 'JOB_STATE_RUNNING');
  if (isTerminal(job.state)) {
    if (job.error)
      return (
        <span class="sub two" title={job.error.message}>
          {job.error.code}: {job.error.message}
        </span>
      );
    return (
      <span class="sub" style={{ display: 'block' }}>
        {trains ? `${count(progress.step)} of ${plural(progress.total_steps, 'update')}` : ''}
      </span>
    );
  }
  const left = num(progress?.estimated_remaining_seconds);
  return (
    <span style={{ display: 'block' }}>
      {trains && <Bar slim percentage={progress.progress_percentage} label={`Progress of ${titleOf(job)}`} />}
      <span class={`sub num${trains ? '' : ' two'}`} style={{ display: 'block' }} title={standing(job)}>
        {[
          standing(job),
          trains ? `${count(progress.step)}/${count(progress.total_steps)}` : '',
          trains && left > 0 && job.state === 'JOB_STATE_RUNNING' ? `${duration(left)} left` : '',
        ]
          .filter(Boolean)
          .join(' · ')}
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
      {after !== undefined && (
        <span style={{ display: 'block' }}>
          {before !== undefined ? `${loss(before)} → ` : 'loss '}
          {loss(after)}
        </span>
      )}
      {effect && effect !== 'not applicable' && (
        <Badge tone={effect === 'active' ? 'good' : effect === 'weak' ? 'warn' : 'bad'}>branch {effect}</Badge>
      )}
    </span>
  );
}
