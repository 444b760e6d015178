import { useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Evaluation, EvaluationTask } from '@/api/types';
import { count } from '@/model/format';
import { standing } from '@/model/states';
import { Icon } from '@/ui/icons';
import { Ago, Bar, Empty, ErrorNote, Head, Loading, Stale, StateBadge } from '@/ui/parts';
import { go, to } from '@/ui/route';
import { MorePages, usePages } from './paging';

export const taskNames: Record<string, string> = {
  perplexity: 'Perplexity',
  multi_needle: 'Needles in long text',
  multiple_choice: 'Multiple choice',
  icl: 'Learning from examples',
  answers: 'Answers',
  head_analysis: 'Attention heads',
  instructions: 'Instructions, for a judge',
};
export const taskName = (task: string) => taskNames[task] ?? task;
export const taskOf = (task: EvaluationTask) => Object.keys(task).find((key) => task[key as keyof EvaluationTask] !== undefined) ?? '';

export function titleOfEvaluation(evaluation: Pick<Evaluation, 'spec' | 'id'>): string {
  const labels = (evaluation.spec?.subjects ?? []).map((subject) => subject.label || subject.model);
  return labels.length > 0 ? labels.join(' against ') : evaluation.id;
}

export function EvaluationsPage() {
  const [picked, setPicked] = useState<string[]>([]);
  const first = usePoll('evaluations', (signal) => call('EvaluationService/ListEvaluations', { page_size: 50 }, signal), 5000);
  const pages = usePages(
    first.data && { items: first.data.evaluations, next: first.data.next_page_token },
    async (token) =>
      call('EvaluationService/ListEvaluations', { page_size: 200, page_token: token }).then((r) => ({
        items: r.evaluations,
        next: r.next_page_token,
      })),
    (evaluation) => evaluation.id,
  );
  return (
    <div class="stack">
      <Head
        title="Evaluations"
        actions={
          <a class="button primary" href={to(['evaluations', 'new'])}>
            <Icon name="plus" />
            New evaluation
          </a>
        }
      >
        <p>Base and adapters on the same samples: every number with its interval, every difference with a verdict.</p>
      </Head>
      <Stale error={first.error} since={first.since} />
      {!first.data ? (
        first.error ? (
          <ErrorNote error={first.error} retry={first.refresh} />
        ) : (
          <Loading what="the evaluations" />
        )
      ) : pages.items.length === 0 ? (
        <div class="card">
          <Empty icon="evaluate" title="Nothing measured yet">
            <p>Measure an adapter against its base: perplexity on your text, facts hidden in long texts, multiple choice and more.</p>
            <a class="button primary" href={to(['evaluations', 'new'])}>
              New evaluation
            </a>
          </Empty>
        </div>
      ) : (
        <section class="card flush scroll-x" tabIndex={0} aria-label="Evaluations">
          <table>
            <thead>
              <tr>
                <th scope="col">
                  <span class="hidden">Ticked</span>
                </th>
                <th scope="col">What is compared</th>
                <th scope="col">Tasks</th>
                <th scope="col">State</th>
                <th scope="col">Created</th>
              </tr>
            </thead>
            <tbody>
              {pages.items.map((evaluation) => (
                <tr key={evaluation.id}>
                  <td>
                    <input
                      type="checkbox"
                      aria-label={`Tick ${titleOfEvaluation(evaluation)}`}
                      checked={picked.includes(evaluation.id)}
                      style={{ width: '18px', height: '18px' }}
                      disabled={evaluation.state !== 'JOB_STATE_SUCCEEDED'}
                      onChange={() =>
                        setPicked((old) =>
                          old.includes(evaluation.id) ? old.filter((id) => id !== evaluation.id) : [...old, evaluation.id].slice(-2),
                        )
                      }
                    />
                  </td>
                  <th scope="row">
                    <a href={to(['evaluations', evaluation.id])}>{titleOfEvaluation(evaluation)}</a>
                  </th>
                  <td>
                    {(evaluation.spec?.tasks ?? []).map(taskOf).map((task, i) => (
                      <span class="tag" key={i}>
                        {taskName(task)}
                      </span>
                    ))}
                  </td>
                  <td>
                    <StateBadge state={evaluation.state} />
                    {evaluation.progress && evaluation.progress.total_steps > 0 && evaluation.state === 'JOB_STATE_RUNNING' && (
                      <>
                        <Bar slim percentage={(100 * evaluation.progress.step) / evaluation.progress.total_steps} label="Tasks done" />
                        <span class="small muted">
                          {count(evaluation.progress.step)}/{count(evaluation.progress.total_steps)} tasks
                        </span>
                      </>
                    )}
                    {evaluation.state === 'JOB_STATE_QUEUED' && (
                      <div class="small muted">{standing({ ...evaluation, pause_reason: 'PAUSE_REASON_UNSPECIFIED' })}</div>
                    )}
                  </td>
                  <td>
                    <Ago time={evaluation.create_time} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <MorePages pages={pages} />
        </section>
      )}
      {picked.length > 0 && (
        <div class="picked-bar row" role="region" aria-label="Ticked evaluations">
          <strong>{picked.length} ticked</strong>
          <span class="grow" />
          <button
            type="button"
            class="button primary"
            disabled={picked.length !== 2}
            onClick={() => go(['evaluations', picked[0]!, 'compare', picked[1]!])}
          >
            Compare two
          </button>
        </div>
      )}
    </div>
  );
}
