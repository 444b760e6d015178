import { useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Evaluation } from '@/api/types';
import { figure, num, signed } from '@/model/format';
import { Check, Select } from '@/ui/form';
import { Badge, ErrorNote, Loading } from '@/ui/parts';
import { taskName, taskOf } from './evaluations';
import { MorePages, usePages } from './paging';

// What was asked and answered. Texts are shown as they are, never as markup.
export function Samples({ evaluation }: { evaluation: Evaluation }) {
  const subjects = (evaluation.spec?.subjects ?? []).map((subject) => subject.label);
  const [task, setTask] = useState('');
  const [subject, setSubject] = useState('');
  const [changed, setChanged] = useState(subjects.length > 1);
  const request = { id: evaluation.id, task, subject, only_changed: changed, page_size: 20 };
  const key = JSON.stringify(request);
  return (
    <div class="stack">
      <div class="row">
        <div style={{ width: '220px' }}>
          <Select
            label="Task"
            value={task}
            onValue={setTask}
            options={[
              ['', 'all'],
              ...(evaluation.spec?.tasks ?? []).map((one, i): [string, string] => [`tasks[${i}]`, taskName(taskOf(one))]),
            ]}
          />
        </div>
        <div style={{ width: '220px' }}>
          <Select
            label="Subject"
            value={subject}
            onValue={setSubject}
            options={[['', 'all'], ...subjects.map((name): [string, string] => [name, name])]}
          />
        </div>
        <Check label="Only where the answer changed" checked={changed} onChecked={setChanged} />
      </div>
      <SampleList key={key} request={request} />
    </div>
  );
}

function SampleList({ request }: { request: { id: string; task: string; subject: string; only_changed: boolean; page_size: number } }) {
  const ask = (token: string, signal?: AbortSignal) =>
    call('EvaluationService/ListEvaluationSamples', { ...request, page_token: token }, signal).then((r) => ({
      items: r.samples,
      next: r.next_page_token,
    }));
  const first = usePoll(`samples ${JSON.stringify(request)}`, (signal) => ask('', signal));
  const pages = usePages(
    first.data,
    (token) => ask(token),
    (sample) => `${sample.task_index} ${sample.subject} ${sample.item}`,
  );
  if (!first.data) return first.error ? <ErrorNote error={first.error} retry={first.refresh} /> : <Loading what="the samples" />;
  if (pages.items.length === 0)
    return <p class="muted">{request.only_changed ? 'No sample changed its score.' : 'No samples were kept.'}</p>;
  return (
    <section class="stack tight" aria-label="Samples">
      {pages.items.map((sample) => {
        const before = sample.baseline_score;
        const change = before === undefined ? 0 : num(sample.score) - num(before);
        return (
          <article class="card stack tight" key={`${sample.task_index} ${sample.subject} ${sample.item}`}>
            <div class="row apart">
              <span class="row">
                <span class="tag">{taskName(sample.task)}</span>
                <strong>{sample.subject}</strong>
                {Number(sample.line) > 0 && <span class="small muted">line {sample.line}</span>}
              </span>
              <span class="row num">
                {change !== 0 && (
                  <Badge tone={change > 0 ? 'good' : 'bad'} icon={change > 0 ? 'better' : 'worse'}>
                    {signed(change)}
                  </Badge>
                )}
                score {figure(sample.score)}
              </span>
            </div>
            {sample.prompt && (
              <div class="turn user">
                <div class="who">asked</div>
                <div class="wrap-any" style={{ whiteSpace: 'pre-wrap' }}>
                  {sample.prompt}
                </div>
              </div>
            )}
            {sample.expected && (
              <div class="turn">
                <div class="who">expected</div>
                <div class="wrap-any">{sample.expected}</div>
              </div>
            )}
            {sample.output && (
              <div class="turn">
                <div class="who">answered</div>
                <div class="wrap-any" style={{ whiteSpace: 'pre-wrap' }}>
                  {sample.output}
                </div>
              </div>
            )}
          </article>
        );
      })}
      <MorePages pages={pages} />
    </section>
  );
}
