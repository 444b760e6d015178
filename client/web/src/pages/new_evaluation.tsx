import { useState } from 'preact/hooks';
import { asRpcError, type RpcError } from '@/api/error';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { EvaluationTask, Loose } from '@/api/types';
import { useAction } from '@/ui/action';
import { FileDrop } from '@/ui/file_drop';
import { Check, Field, Select, TextInput } from '@/ui/form';
import { Act, ErrorNote, Head, Loading, Note } from '@/ui/parts';
import { go, to } from '@/ui/route';
import { shortName } from './adapters';
import { taskNames } from './evaluations';

interface Kind {
  key: keyof EvaluationTask;
  what: string;
  needs: string; // what the file is; empty: none is needed
  optional?: boolean; // the file may be left out
}

const kinds: Kind[] = [
  { key: 'perplexity', what: 'How surprised the model is by a text. Lower is better.', needs: 'plain text, or JSON Lines with text' },
  {
    key: 'multi_needle',
    what: 'Facts hidden in long texts: does it find them, at every length and depth?',
    needs: 'a text to hide them in',
    optional: true,
  },
  {
    key: 'multiple_choice',
    what: 'Questions with choices, by the likelihood of each.',
    needs: 'MMLU’s CSV, or JSON Lines with question, choices, answer',
  },
  { key: 'icl', what: 'Classifies from a few examples in the prompt.', needs: 'JSON Lines with text and label' },
  { key: 'answers', what: 'Answers in its own words, held against given ones.', needs: 'JSON Lines with prompt and answers' },
  { key: 'head_analysis', what: 'What every attention head does: entropy, importance, likeness.', needs: 'text, as perplexity reads it' },
  {
    key: 'instructions',
    what: 'Writes answers for a judge of yours; measures nothing itself.',
    needs: 'AlpacaEval’s set, or JSON Lines with instruction',
  },
];

export function NewEvaluationPage({ query }: { query: URLSearchParams }) {
  const [adapter, setAdapter] = useState(query.get('adapter') ?? '');
  const [half, setHalf] = useState(false);
  const [off, setOff] = useState(false);
  const [int8, setInt8] = useState(false);
  const [seed, setSeed] = useState('');
  const [files, setFiles] = useState<Partial<Record<string, string>>>({});
  const [chosen, setChosen] = useState<string[]>(['perplexity']);
  const [samples, setSamples] = useState('');
  const [error, setError] = useState<RpcError | undefined>(undefined);
  const adapters = usePoll('own adapters', (signal) => call('AdapterService/ListAdapters', { page_size: 200 }, signal));
  const ready = usePoll('ready files', (signal) => call('FileService/ListFiles', { page_size: 200, state: 'FILE_STATE_READY' }, signal));
  const { busy, run } = useAction();
  if (!adapters.data || !ready.data) {
    const first = adapters.error ?? ready.error;
    return first ? <ErrorNote error={first} retry={() => (adapters.refresh(), ready.refresh())} /> : <Loading what="adapters and files" />;
  }
  const list = adapters.data.adapters;
  const current = list.find((one) => one.id === adapter) ?? list[0];
  const branch = current !== undefined && (current.method === 'dex' || current.form !== '');
  const missing = kinds.filter((kind) => chosen.includes(kind.key) && !kind.optional && !files[kind.key]);
  const options: [string, string][] = ready.data.files.map((file) => [file.id, `${file.filename} (…${file.id.slice(-4)})`]);

  const tasks = chosen.map((key): Loose<EvaluationTask> => {
    const file = files[key] ?? '';
    const count = samples ? { samples } : {};
    if (key === 'multi_needle')
      return { multi_needle: { file, ...(samples ? { samples_per_cell: Math.min(1000, Number(samples)) } : {}) } };
    if (key === 'multiple_choice' || key === 'icl' || key === 'answers') return { [key]: { file, ...count } };
    return { [key]: { file } };
  });
  const submit = () =>
    run('submit', async () => {
      setError(undefined);
      try {
        const subjects = [
          { model: current!.base_model },
          { adapter: current!.id },
          ...(branch && half ? [{ adapter: current!.id, dex_lambda_scale: 0.5 }] : []),
          ...(branch && off ? [{ adapter: current!.id, dex_lambda_scale: 0 }] : []),
          ...(int8 ? [{ adapter: current!.id, dtype: 'DTYPE_INT8' as const }] : []),
        ].slice(0, 4);
        const made = await call('EvaluationService/CreateEvaluation', {
          spec: { subjects, tasks, ...(seed ? { seed } : {}) },
          request_id: requestId(),
        });
        go(['evaluations', made.id]);
      } catch (cause) {
        setError(asRpcError(cause));
      }
    });

  return (
    <form class="stack" onSubmit={(event) => (event.preventDefault(), void submit())}>
      <Head title="New evaluation">
        <p>An adapter against its base, on the same samples. It waits in the line of the jobs and runs on a worker.</p>
      </Head>
      {!current && (
        <Note tone="warn">
          There is no adapter to measure yet. <a href={to(['jobs', 'new'])}>Train one</a> first.
        </Note>
      )}
      <section class="card stack tight" aria-label="Subjects">
        <h2>Who is measured</h2>
        <Select
          label="Adapter"
          value={current?.id ?? ''}
          onValue={setAdapter}
          options={list.map((one): [string, string] => [one.id, `${shortName(one.id)} on ${one.base_model}`])}
          hint={current && `Compared with ${current.base_model}, its base.`}
        />
        {branch && (
          <>
            <Check label="Once more with half its λ" checked={half} onChecked={setHalf} />
            <Check
              label="Once more without its subtraction (λ × 0)"
              hint="What then remains is ordinary training of K, V and O."
              checked={off}
              onChecked={setOff}
            />
          </>
        )}
        {!chosen.includes('head_analysis') && (
          <Check label="Once more in eight bits, as workers can serve it" checked={int8} onChecked={setInt8} />
        )}
      </section>
      <section class="card stack" aria-label="Tasks">
        <h2>What is measured</h2>
        {kinds.map((kind) => {
          const on = chosen.includes(kind.key);
          return (
            <div class="stack tight" key={kind.key}>
              <Check
                label={<strong>{taskNames[kind.key]}</strong>}
                hint={kind.what}
                checked={on}
                onChecked={(checked) => setChosen(checked ? [...chosen, kind.key] : chosen.filter((key) => key !== kind.key))}
              />
              {on && (
                <div style={{ paddingLeft: '28px', maxWidth: '560px' }}>
                  <Select
                    label="File"
                    hint={`It reads ${kind.needs}.`}
                    value={files[kind.key] ?? ''}
                    onValue={(id) => setFiles({ ...files, [kind.key]: id })}
                    options={[['', kind.optional ? 'none: a text that comes with the platform' : 'choose a file'], ...options]}
                  />
                </div>
              )}
            </div>
          );
        })}
        <details class="more">
          <summary>Another file</summary>
          <FileDrop purpose="FILE_PURPOSE_EVALS" what="a text or questions" onDone={ready.refresh} />
        </details>
        <div class="grid">
          <Field label="Samples, at most" hint="Of questions; of needles, in each cell.">
            {(props) => (
              <input
                class="input"
                inputMode="numeric"
                value={samples}
                placeholder="all, or the task’s default"
                onInput={(event) => setSamples(event.currentTarget.value.replace(/\D/g, ''))}
                {...props}
              />
            )}
          </Field>
          <TextInput
            label="Seed"
            inputMode="numeric"
            value={seed}
            onValue={(value) => setSeed(value.replace(/\D/g, ''))}
            placeholder="0"
            hint="Same seed, same samples."
          />
        </div>
      </section>
      <ErrorNote error={error} />
      <p class="row">
        <Act
          type="submit"
          kind="primary"
          icon="play"
          busy={busy === 'submit'}
          disabled={!current || chosen.length === 0 || missing.length > 0}
        >
          Start measuring
        </Act>
        {missing.length > 0 && <span class="muted">{taskNames[missing[0]!.key]} needs a file.</span>}
      </p>
    </form>
  );
}
