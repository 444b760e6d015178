import { useEffect, useState } from 'preact/hooks';
import { save } from '@/api/download';
import { follow, type Watch } from '@/api/follow';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { Evaluation, FineTuningEvent } from '@/api/types';
import { bytes, count, moment } from '@/model/format';
import { canCancel, isTerminal, phaseText, standing, whoActs } from '@/model/states';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { say } from '@/ui/messages';
import { Act, Badge, Bar, Command, ErrorNote, Facts, Head, Id, Loading, Note, Stale, StateBadge } from '@/ui/parts';
import { Tabs } from '@/ui/tabs';
import { go, to } from '@/ui/route';
import { Comparison } from './evaluation_compare';
import { Results } from './evaluation_results';
import { Samples } from './evaluation_samples';
import { taskName, taskOf, titleOfEvaluation } from './evaluations';
import { JobEvents } from './job_events';

export function EvaluationPage({ id, compare }: { id: string; compare: string }) {
  return compare ? <Comparison a={id} b={compare} /> : <One id={id} />;
}

function One({ id }: { id: string }) {
  const { events, watch, state } = useEvents(id);
  const asked = usePoll(
    `evaluation ${id} ${state}`,
    (signal) => call('EvaluationService/GetEvaluation', { id }, signal),
    state && isTerminal(state) ? 0 : 3000,
  );
  const [tab, setTab] = useState('results');
  const { busy, run } = useAction();
  const [received, setReceived] = useState(0);
  if (!asked.data) return asked.error ? <ErrorNote error={asked.error} retry={asked.refresh} /> : <Loading what="the evaluation" />;
  const evaluation = asked.data;
  const over = isTerminal(evaluation.state);
  const progress = evaluation.progress;
  const cancel = async () => {
    if (await ask('Cancel this evaluation?', <p>What it has measured so far is not kept.</p>, 'Cancel it')) {
      await run('cancel', async () => {
        await call('EvaluationService/CancelEvaluation', { id, request_id: requestId() });
        asked.refresh();
      });
    }
  };
  const remove = async () => {
    if (!(await ask('Delete this evaluation?', <p>Its results, samples and report go.</p>, 'Delete it'))) return;
    await run('delete', async () => {
      await call('EvaluationService/DeleteEvaluation', { id, request_id: requestId() });
      say('The evaluation is deleted.');
      go(['evaluations']);
    });
  };
  return (
    <div class="stack">
      <Head
        title={titleOfEvaluation(evaluation)}
        actions={
          <>
            {canCancel(evaluation.state) && (
              <Act icon="stop" kind="danger" busy={busy === 'cancel'} onClick={() => void cancel()}>
                Cancel
              </Act>
            )}
            {evaluation.state === 'JOB_STATE_SUCCEEDED' && (
              <Act
                icon="download"
                busy={busy === 'save'}
                onClick={() => run('save', () => save('EvaluationService/DownloadEvaluation', { id }, `${id}.tar`, setReceived))}
              >
                {busy === 'save' && received > 0 ? bytes(received) : 'Report and pictures'}
              </Act>
            )}
            {over && (
              <Act icon="trash" busy={busy === 'delete'} onClick={() => void remove()}>
                Delete
              </Act>
            )}
          </>
        }
      >
        <p class="row">
          <StateBadge state={evaluation.state} />
          <Id id={id} />
        </p>
      </Head>
      {!over && (
        <section class="card job-bar" aria-label="Where it stands">
          <div class="row apart">
            <strong>
              {progress && progress.total_steps > 0
                ? `Task ${count(Math.min(progress.step + 1, progress.total_steps))} of ${count(progress.total_steps)}${phaseText(evaluation.phase) ? `: ${phaseText(evaluation.phase)}` : ''}`
                : standing({ ...evaluation, pause_reason: 'PAUSE_REASON_UNSPECIFIED' }) || 'Starting'}
            </strong>
            {!watch.ended && <Stale error={watch.error} since={watch.since} />}
          </div>
          <Bar percentage={progress && progress.total_steps > 0 ? (100 * progress.step) / progress.total_steps : 0} label="Tasks done" />
        </section>
      )}
      {evaluation.error && (
        <Note tone="bad">
          <p>
            <strong>{evaluation.error.message}</strong>
          </p>
          <p class="small muted">
            {whoActs(evaluation.error.category)} <code>{evaluation.error.code}</code>
          </p>
        </Note>
      )}
      <Tabs
        label="About this evaluation"
        current={tab}
        onCurrent={setTab}
        tabs={[
          {
            key: 'results',
            label: 'Results',
            content: () =>
              over && evaluation.results.length > 0 ? (
                <Results evaluation={evaluation} />
              ) : (
                <p class="muted">
                  {over
                    ? 'It ended without results.'
                    : 'Results come when the last task has ended; what single tasks have found is under Events.'}
                </p>
              ),
          },
          {
            key: 'samples',
            label: 'Samples',
            content: () =>
              evaluation.state === 'JOB_STATE_SUCCEEDED' ? (
                <Samples evaluation={evaluation} />
              ) : (
                <p class="muted">Samples come with the results.</p>
              ),
          },
          { key: 'events', label: `Events (${count(events.length)})`, content: () => <JobEvents events={events} /> },
          { key: 'asked', label: 'What was asked', content: () => <Asked evaluation={evaluation} /> },
        ]}
      />
    </div>
  );
}

function useEvents(id: string) {
  const [state, setState] = useState<{ events: FineTuningEvent[]; watch: Watch; state: string }>({
    events: [],
    watch: { live: false, ended: false, since: 0 },
    state: '',
  });
  useEffect(() => {
    const stop = new AbortController();
    void follow(
      'EvaluationService/WatchEvaluation',
      id,
      (messages) =>
        setState((old) => ({
          ...old,
          events: [...old.events, ...messages.flatMap((message) => (message.event ? [message.event] : []))],
          state: messages.reduce((latest, message) => message.snapshot?.state ?? latest, old.state),
        })),
      (watch) => setState((old) => ({ ...old, watch })),
      stop.signal,
    );
    return () => stop.abort();
  }, [id]);
  return state;
}

function Asked({ evaluation }: { evaluation: Evaluation }) {
  const spec = evaluation.spec;
  return (
    <div class="stack">
      <section class="card stack tight" aria-label="Subjects">
        <h2>Subjects</h2>
        <table>
          <tbody>
            {(spec?.subjects ?? []).map((subject, i) => (
              <tr key={i}>
                <th scope="row">{subject.label}</th>
                <td>{subject.adapter ? <a href={to(['adapters', subject.adapter])}>{subject.adapter}</a> : subject.model}</td>
                <td>
                  {i === 0 && <Badge>compared with</Badge>}
                  {subject.dex_lambda_scale !== undefined && <span class="tag">λ × {subject.dex_lambda_scale}</span>}
                  {subject.dtype === 'DTYPE_INT8' && <span class="tag">eight bits</span>}
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
      <section class="card stack tight" aria-label="Tasks">
        <h2>Tasks</h2>
        {(spec?.tasks ?? []).map((task, i) => (
          <details class="more" key={i}>
            <summary>{taskName(taskOf(task))}</summary>
            <pre class="small wrap-any" style={{ whiteSpace: 'pre-wrap' }}>
              {JSON.stringify(task, null, 1)}
            </pre>
          </details>
        ))}
      </section>
      <section class="card stack tight" aria-label="About it">
        <Facts
          items={[
            ['Seed', String(spec?.seed ?? 0)],
            ['Confidence', String(spec?.confidence ?? 0.95)],
            ['Created', moment(evaluation.create_time)],
            ['Ended', moment(evaluation.end_time)],
            ['Worker', evaluation.worker || '–'],
          ]}
        />
        <Command text={`dexctl evaluations get ${evaluation.id} --out report/`} />
      </section>
    </div>
  );
}
