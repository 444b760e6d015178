import { useEffect, useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { FineTuningJob } from '@/api/types';
import { bytes, count, duration, loss, moment, num, percent } from '@/model/format';
import { titleOf } from '@/model/job_filter';
import { latestLease, leaseWords, startWords } from '@/model/job_lease';
import { canCancel, canCheckpoint, canPause, canResume, groupOf, isTerminal, standing, whoActs } from '@/model/states';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { isCommand } from '@/ui/help';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Act, Bar, ErrorNote, Figures, Head, Id, Loading, Note, Stale, StateBadge, useTick } from '@/ui/parts';
import { Tabs } from '@/ui/tabs';
import { go, setQuery, to } from '@/ui/route';
import { JobConfig } from './job_config';
import { JobCurves } from './job_curves';
import { JobCheckpoints, JobEvents } from './job_events';
import { JobHeads } from './job_heads';
import { useJobLive, type JobLive } from './job_live';
import { JobResults } from './job_results';
import { JobRows } from './job_rows';
import { JobVerdict } from './job_verdict';
import { jobsStore } from './jobs_store';

export function JobPage({ id, tab }: { id: string; tab: string }) {
  const [round, setRound] = useState(0);
  const live = useJobLive(id, round);
  // The record whole: effective configuration and head selection, which the watch's snapshots may leave out; and what a
  // running job has reached since.
  const over = live.job ? isTerminal(live.job.state) : false;
  const whole = usePoll(
    `job ${id} ${live.job?.state} ${round}`,
    (signal) => call('FineTuningService/GetFineTuningJob', { id, with_head_selection: over }, signal),
    over ? 0 : 3000,
  );
  const job = withLatestStep(latest(whole.data, live.job), live);
  if (!job) {
    const error = whole.error ?? live.watch.error;
    return error ? <ErrorNote error={error} retry={() => (whole.refresh(), setRound(round + 1))} /> : <Loading what="the job" />;
  }
  return (
    <div class="stack">
      <JobHead job={job} onChanged={() => (whole.refresh(), live.watch.ended && setRound(round + 1))} />
      <Standing job={job} live={live} />
      {job.error && (
        <Note tone="bad">
          <p>
            <strong>{job.error.message}</strong>
          </p>
          <p class="small muted">
            {whoActs(job.error.category)} <code>{job.error.code}</code>
            {job.error.step !== undefined && <> · after update {count(job.error.step)}</>}
            {job.error.param && (
              <>
                {' '}
                · <code>{job.error.param}</code>
              </>
            )}
          </p>
          {Object.keys(job.error.out_of_memory?.nearest_fit ?? {}).length > 0 && (
            <p>
              What would fit:{' '}
              {Object.entries(job.error.out_of_memory!.nearest_fit).map(([path, value]) => (
                <code key={path}>
                  {path} = {value}{' '}
                </code>
              ))}
            </p>
          )}
        </Note>
      )}
      {job.state === 'JOB_STATE_SUCCEEDED' && <JobVerdict job={job} />}
      <JobResults job={job} />
      <Tabs
        label="About this job"
        current={tab}
        onCurrent={(key) => setQuery({ tab: key })}
        tabs={[
          { key: 'curves', label: 'Curves', content: () => <JobCurves live={live} job={job} /> },
          { key: 'heads', label: 'Heads', content: () => <JobHeads live={live} job={job} /> },
          { key: 'rows', label: 'Rows', content: () => <JobRows events={live.events} job={job} /> },
          { key: 'events', label: `Events (${count(live.events.length)})`, content: () => <JobEvents events={live.events} /> },
          { key: 'checkpoints', label: 'Checkpoints', content: () => <JobCheckpoints events={live.events} job={job} /> },
          { key: 'config', label: 'Configuration', content: () => <JobConfig job={job} /> },
        ]}
      />
    </div>
  );
}

// Of two readings of one job the later one, with what only the other has.
function latest(whole: FineTuningJob | undefined, snapshot: FineTuningJob | undefined): FineTuningJob | undefined {
  if (!whole || !snapshot) return whole ?? snapshot;
  const newer = (snapshot.update_time ?? '') > (whole.update_time ?? '') ? snapshot : whole;
  return {
    ...newer,
    effective_config: newer.effective_config ?? whole.effective_config,
    head_selection: newer.head_selection ?? whole.head_selection,
    estimated_start_time: newer.estimated_start_time ?? whole.estimated_start_time,
    ...latestLease(whole, snapshot),
  };
}

// What the newest event says, which is later than any record.
function withLatestStep(job: FineTuningJob | undefined, { series }: JobLive): FineTuningJob | undefined {
  const step = series.step.last();
  if (job?.progress && isTerminal(job.state)) {
    const { train_loss = finite(series.train_loss.last()), branch_ratio = job.branch_effect?.value } = job.progress;
    return { ...job, progress: { ...job.progress, train_loss, branch_ratio } };
  }
  if (!job?.progress || !(step > job.progress.step)) return job;
  const percentage = (100 * step) / Math.max(1, job.progress.total_steps);
  const evaluated = series.eval_step.length > 0 ? { valid_loss: series.valid_loss.last(), branch_ratio: series.branch_ratio.last() } : {};
  return {
    ...job,
    progress: {
      ...job.progress,
      step,
      progress_percentage: percentage,
      train_loss: series.train_loss.last(),
      tokens_per_second: series.tokens_per_second.last(),
      ...evaluated,
    },
  };
}

const finite = (value: number) => (Number.isFinite(value) ? value : undefined);

function JobHead({ job, onChanged }: { job: FineTuningJob; onChanged: () => void }) {
  const { busy, run } = useAction();
  const change = (name: string, act: () => Promise<FineTuningJob>, done: string) =>
    run(name, async () => {
      jobsStore.put(await act());
      say(done);
      onChanged();
    });
  const id = job.id;
  const cancel = async () => {
    if (
      await ask(
        `Cancel “${titleOf(job)}”?`,
        <p>It stops at its next update and does not go on from there. To stop only for a while, pause it.</p>,
        'Cancel the job',
      )
    ) {
      await change(
        'cancel',
        () => call('FineTuningService/CancelFineTuningJob', { id, request_id: requestId() }),
        'The job is being cancelled.',
      );
    }
  };
  const remove = async () => {
    const body = (
      <p>Its record, events, checkpoints and result files go. Its adapter stays{job.fine_tuned_model ? ', under Adapters' : ''}.</p>
    );
    if (!(await ask(`Delete “${titleOf(job)}”?`, body, 'Delete the job'))) return;
    await run('delete', async () => {
      await call('FineTuningService/DeleteFineTuningJob', { id, request_id: requestId() });
      jobsStore.remove(id);
      say('The job is deleted.');
      go(['jobs']);
    });
  };
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.key === 'c' && isCommand(event) && canCancel(job.state)) (event.preventDefault(), void cancel());
    };
    window.addEventListener('keydown', press);
    return () => window.removeEventListener('keydown', press);
  });
  return (
    <Head
      title={<>{titleOf(job)}</>}
      actions={
        <>
          {canPause(job.state) && (
            <Act
              icon="pause"
              busy={busy === 'pause'}
              onClick={() =>
                change(
                  'pause',
                  () => call('FineTuningService/PauseFineTuningJob', { id, request_id: requestId() }),
                  'The job pauses once its checkpoint is written.',
                )
              }
            >
              Pause
            </Act>
          )}
          {canResume(job.state) && (
            <Act
              icon="play"
              kind="primary"
              busy={busy === 'resume'}
              onClick={() =>
                change(
                  'resume',
                  () => call('FineTuningService/ResumeFineTuningJob', { id, request_id: requestId() }),
                  'The job is in line again.',
                )
              }
            >
              {job.pause_reason === 'PAUSE_REASON_AWAITING_START' ? 'Start' : 'Resume'}
            </Act>
          )}
          {canCheckpoint(job.state) && (
            <Act
              icon="save"
              busy={busy === 'checkpoint'}
              onClick={() =>
                run('checkpoint', async () => {
                  const made = await call('FineTuningService/CreateCheckpoint', { job: id, request_id: requestId() });
                  say(`Checkpoint after update ${count(made.step)} is written and read back.`);
                })
              }
            >
              Checkpoint now
            </Act>
          )}
          {canCancel(job.state) && (
            <Act icon="stop" kind="danger" busy={busy === 'cancel'} onClick={() => void cancel()}>
              Cancel
            </Act>
          )}
          {job.state === 'JOB_STATE_FAILED' && (
            <Act
              icon="retry"
              busy={busy === 'redrive'}
              onClick={() =>
                change(
                  'redrive',
                  () => call('AdminService/RedriveFineTuningJob', { id, request_id: requestId() }),
                  'The job is in line again; it goes on from its last checkpoint.',
                )
              }
            >
              Try again
            </Act>
          )}
          {job.state === 'JOB_STATE_SUCCEEDED' && (
            <a class="button primary" href={to(['playground'], { adapter: job.fine_tuned_model })}>
              <Icon name="chat" />
              Try it
            </a>
          )}
          {isTerminal(job.state) && (
            <Act icon="trash" busy={busy === 'delete'} onClick={() => void remove()}>
              Delete
            </Act>
          )}
        </>
      }
    >
      <p class="row">
        <StateBadge state={job.state} />
        <span>
          on <strong>{job.model}</strong>
        </span>
        <Id id={job.id} />
      </p>
    </Head>
  );
}

function Standing({ job, live }: { job: FineTuningJob; live: JobLive }) {
  const progress = job.progress;
  const over = isTerminal(job.state);
  useTick(over ? 0 : 1000); // ages
  const lease = groupOf(job.state) === 'running' ? leaseWords(job, Date.now()) : '';
  const start = startWords(job, Date.now());
  const trains = progress !== undefined && progress.total_steps > 0;
  const words = standing(job);
  const seconds = job.start_time ? ((job.end_time ? Date.parse(job.end_time) : Date.now()) - Date.parse(job.start_time)) / 1000 : NaN;
  return (
    <section class="card job-bar" aria-label="Where it stands">
      <div class="row apart">
        <strong>
          {over
            ? trains
              ? `${count(progress.step)} of ${count(progress.total_steps)} updates`
              : 'It did not train'
            : trains && job.state !== 'JOB_STATE_QUEUED'
              ? `Update ${count(progress.step)} of ${count(progress.total_steps)}${words ? `: ${words}` : ''}`
              : words || 'Starting'}
        </strong>
        {live.watch.live && !over ? (
          <span class="badge good">
            <Icon name="dot" />
            live
          </span>
        ) : (
          !live.watch.ended && <Stale error={live.watch.error} since={live.watch.since} />
        )}
      </div>
      {trains && (
        <Bar
          percentage={progress.progress_percentage}
          label="Progress"
          {...(job.state === 'JOB_STATE_SUCCEEDED' ? { tone: 'good' as const } : {})}
        />
      )}
      <Figures
        items={[
          ...(over
            ? [['Took', duration(seconds)] as [string, string]]
            : [
                [
                  'Time left',
                  trains && num(progress.estimated_remaining_seconds) > 0 ? duration(progress.estimated_remaining_seconds) : '–',
                ] as [string, string],
              ]),
          ['Training loss', loss(progress?.train_loss)],
          [
            'Held-out loss',
            loss(job.metrics?.valid_loss ?? progress?.valid_loss),
            job.metrics?.base_valid_loss !== undefined ? `base ${loss(job.metrics.base_valid_loss)}` : undefined,
          ],
          ['Speed', `${count(job.metrics?.tokens_per_second || progress?.tokens_per_second)}`, 'tokens/s'],
          ['Branch ratio', percent(progress?.branch_ratio, 2)],
          ['Memory, most', bytes(progress?.host_memory_bytes)],
        ]}
      />
      <p class="small muted">
        Created {moment(job.create_time)}
        {job.worker && (
          <>
            {' '}
            · worker <code>{job.worker}</code>
          </>
        )}
        {lease && `, ${lease}`}
        {start && ` · ${start}`}
        {job.attempt > 1 && <> · attempt {job.attempt}</>}
        {job.early_stopped && ' · ended early: held-out loss fell no more'} · priority {job.priority}
      </p>
      {job.warnings.length > 0 && (
        <Note tone="warn">
          {job.warnings.map((text) => (
            <p key={text}>{text}</p>
          ))}
        </Note>
      )}
    </section>
  );
}
