import { useEffect, useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { Estimate, HeadSelectionReport } from '@/api/types';
import { count, plural, short } from '@/model/format';
import { emptyRecipe, faultsOf, specOf, type Recipe } from '@/model/recipe';
import { useAction } from '@/ui/action';
import { FileDrop } from '@/ui/file_drop';
import { Icon } from '@/ui/icons';
import { sayError } from '@/ui/messages';
import { Choices, Select } from '@/ui/form';
import { Badge, ErrorNote, Head, Loading } from '@/ui/parts';
import { go } from '@/ui/route';
import { HeadGrid, selectionOf } from './job_heads';
import { jobsStore } from './jobs_store';
import { EstimatePanel } from './new_job_estimate';
import { RecipeOptions } from './new_job_options';
import { PresetCards } from './new_job_presets';
import { RowPreview } from './row_preview';
import { useEstimate } from './use_estimate';

const methods: { value: Recipe['method']; title: string; text: string }[] = [
  { value: 'dex', title: 'DEX', text: 'Trains attention’s K, V and O, and a subtraction beside them.' },
  { value: 'kvo_only', title: 'K, V, O only', text: 'The control: the same training without the subtraction.' },
  { value: 'lora', title: 'LoRA', text: 'Small matrices beside frozen weights. Loads in PEFT.' },
  { value: 'adapter', title: 'Bottleneck adapter', text: 'A small network behind attention and MLP.' },
  { value: 'full', title: 'Every weight', text: 'All parameters. Needs the most memory; makes a whole model.' },
];

export function NewJobPage({ query }: { query: URLSearchParams }) {
  const [recipe, setRecipe] = useState<Recipe>({ ...emptyRecipe, training_file: query.get('file') ?? '', model: query.get('model') ?? '' });
  const [tried, setTried] = useState(false);
  const [probe, setProbe] = useState<{ spec: string; estimate: Estimate } | undefined>(undefined);
  const [heads, setHeads] = useState<HeadSelectionReport | undefined>(undefined);
  const models = usePoll('models', (signal) => call('ModelService/ListModels', {}, signal));
  const presets = usePoll('presets', (signal) => call('ModelService/ListPresets', {}, signal));
  const files = usePoll('ready files', (signal) => call('FileService/ListFiles', { page_size: 100, state: 'FILE_STATE_READY' }, signal));
  const adapters = usePoll('own adapters', (signal) => call('AdapterService/ListAdapters', { page_size: 100 }, signal));
  const { busy, run } = useAction();
  const set = (change: Partial<Recipe>) => (setRecipe((old) => ({ ...old, ...change })), setHeads(undefined));

  useEffect(() => {
    const only = models.data?.models[0];
    if (!recipe.model && only) set({ model: only.name });
  }, [models.data]);
  const like = query.get('like');
  useEffect(() => {
    if (!like) return;
    call('FineTuningService/GetFineTuningJob', { id: like })
      .then((job) => {
        const spec = job.effective_config?.spec;
        const method = spec?.kvo_only ? 'kvo_only' : spec?.lora ? 'lora' : spec?.adapter ? 'adapter' : spec?.full ? 'full' : 'dex';
        set({
          model: job.model,
          training_file: job.training_file,
          validation_file: job.validation_file,
          method,
          preset: job.effective_config?.preset_version.split('@')[0] || 'auto',
          suffix: job.suffix,
          max_steps: spec?.hyperparameters?.max_steps ? String(spec.hyperparameters.max_steps) : '',
        });
      })
      .catch(sayError);
  }, [like]);

  const faults = faultsOf(recipe);
  const fault = (field: keyof Recipe) =>
    tried || String(recipe[field]) !== '' ? faults.find((one) => one.field === field)?.message : undefined;
  const key = JSON.stringify(specOf(recipe));
  const { estimate, error, asking } = useEstimate(recipe, key, faults.length === 0);
  const measured = probe?.spec === key ? probe.estimate : undefined;
  const ready = (files.data?.files ?? []).filter((file) => file.purpose === 'FILE_PURPOSE_FINE_TUNE');
  const goesOn = recipe.model.startsWith('ft:');

  const submit = () => {
    setTried(true);
    const first = faults[0];
    if (first)
      return document
        .getElementById(`part-${first.field === 'model' ? 'model' : first.field === 'training_file' ? 'data' : 'options'}`)
        ?.scrollIntoView({ behavior: 'smooth' });
    return void run('submit', async () => {
      const job = await call('FineTuningService/CreateFineTuningJob', { spec: specOf(recipe), request_id: requestId() });
      jobsStore.put(job);
      go(['jobs', job.id]);
    });
  };

  return (
    <form onSubmit={(event) => (event.preventDefault(), submit())} noValidate>
      <Head title="New job">
        <p>Four choices, of which the last two make themselves. Nothing starts before you say so.</p>
      </Head>
      <div class="split">
        <div class="stack">
          <Part n={1} id="model" title="Base model" done={recipe.model !== ''}>
            {!models.data ? (
              models.error ? (
                <ErrorNote error={models.error} retry={models.refresh} />
              ) : (
                <Loading what="the models" />
              )
            ) : (
              <Choices
                legend="Base model"
                value={recipe.model}
                onValue={(model) => set({ model })}
                choices={models.data.models.map((model) => ({
                  value: model.name,
                  title: model.display_name || model.name,
                  more: (
                    <>
                      <span class="small muted">
                        {short(model.parameters)} parameters · {plural(model.layers, 'layer')} × {plural(model.query_heads, 'head')} ·{' '}
                        {count(model.context_length)} tokens of context
                      </span>
                      <span class="row">
                        {model.served ? (
                          <Badge tone="good" icon="check">
                            in memory
                          </Badge>
                        ) : (
                          <Badge icon="clock">no worker has it now</Badge>
                        )}
                        <span class="tag">{model.license}</span>
                        {model.differential && <span class="tag">no DEX on it: it is differential itself</span>}
                      </span>
                    </>
                  ),
                }))}
              />
            )}
            {(adapters.data?.adapters.length ?? 0) > 0 && (
              <div style={{ marginTop: '12px', maxWidth: '520px' }}>
                <Select
                  label="Or go on from an adapter"
                  value={goesOn ? recipe.model : ''}
                  onValue={(model) => set({ model: model || (models.data?.models[0]?.name ?? '') })}
                  options={[
                    ['', 'no, from a base model'],
                    ...adapters.data!.adapters.map((adapter): [string, string] => [adapter.id, adapter.id]),
                  ]}
                />
              </div>
            )}
            {fault('model') && (
              <p class="field">
                <span class="fault">{fault('model')}</span>
              </p>
            )}
          </Part>
          <Part n={2} id="data" title="Training data" done={recipe.training_file !== ''}>
            <div class="stack tight">
              <FileDrop
                purpose="FILE_PURPOSE_FINE_TUNE"
                onDone={(file) => file.state === 'FILE_STATE_READY' && (files.refresh(), set({ training_file: file.id }))}
              />
              {(ready.length > 0 || recipe.training_file) && (
                <div class="grid">
                  <Select
                    label="Train on"
                    value={recipe.training_file}
                    onValue={(training_file) => set({ training_file })}
                    options={[['', 'choose a file'], ...fileOptions(ready, recipe.training_file)]}
                  />
                  <Select
                    label="Measure on"
                    hint="Rows that are not trained on."
                    value={recipe.validation_file}
                    onValue={(validation_file) => set({ validation_file })}
                    options={[
                      ['', 'some of the same rows, held out'],
                      ...fileOptions(
                        ready.filter((file) => file.id !== recipe.training_file),
                        recipe.validation_file,
                      ),
                    ]}
                  />
                </div>
              )}
              {recipe.training_file && recipe.model && (
                <RowPreview
                  file={recipe.training_file}
                  model={recipe.model}
                  preset={recipe.method === 'dex' || recipe.method === 'kvo_only' ? recipe.preset : ''}
                  maxSeqLength={recipe.max_seq_length}
                />
              )}
              {fault('training_file') && (
                <p class="field">
                  <span class="fault">{fault('training_file')}</span>
                </p>
              )}
            </div>
          </Part>
          {!goesOn && (
            <Part n={3} id="recipe" title="Recipe" done>
              <div class="stack tight">
                {(recipe.method === 'dex' || recipe.method === 'kvo_only') && (
                  <PresetCards
                    presets={presets.data?.presets}
                    model={recipe.model}
                    value={recipe.preset}
                    onValue={(preset) => set({ preset })}
                  />
                )}
                <details class="more" open={recipe.method !== 'dex'}>
                  <summary>Another method, to compare DEX with</summary>
                  <Choices
                    legend="Method"
                    value={recipe.method}
                    onValue={(method) => set({ method: method as Recipe['method'] })}
                    choices={methods.map(({ value, title, text }) => ({ value, title, more: <span class="small muted">{text}</span> }))}
                  />
                </details>
                {recipe.method === 'dex' && recipe.training_file && recipe.model && (
                  <div class="stack tight">
                    <p>
                      <button
                        type="button"
                        class="button"
                        aria-busy={busy === 'heads'}
                        onClick={() =>
                          run('heads', async () => {
                            const selection = { model: recipe.model, file: recipe.training_file, preset: recipe.preset };
                            setHeads(await call('FineTuningService/PreviewHeadSelection', selection));
                          })
                        }
                      >
                        <Icon name={busy === 'heads' ? 'spin' : 'adapters'} class={busy === 'heads' ? 'spin' : ''} size={17} />
                        {busy === 'heads' ? 'A worker measures every head …' : 'See which heads it would adapt'}
                      </button>
                    </p>
                    {heads && <HeadGrid selection={selectionOf(heads)} />}
                  </div>
                )}
              </div>
            </Part>
          )}
          <Part n={4} id="options" title="Name and options" done>
            <RecipeOptions recipe={recipe} set={set} fault={fault} />
          </Part>
        </div>
        <EstimatePanel
          recipe={recipe}
          estimate={measured ?? estimate}
          error={error}
          asking={asking}
          faults={faults}
          submitting={busy === 'submit'}
          probing={busy === 'probe'}
          onProbe={() =>
            run('probe', async () => {
              setProbe({
                spec: key,
                estimate: await call('FineTuningService/EstimateFineTuningJob', { spec: specOf(recipe), mode: 'METHOD_PROBE' }),
              });
            })
          }
        />
      </div>
    </form>
  );
}

function fileOptions(
  files: { id: string; filename: string; statistics?: { rows_good: string } | undefined }[],
  chosen: string,
): [string, string][] {
  const options = files.map((file): [string, string] => [file.id, `${file.filename}, ${count(file.statistics?.rows_good)} rows`]);
  if (chosen && !files.some((file) => file.id === chosen)) options.unshift([chosen, chosen]);
  return options;
}

function Part({
  n,
  id,
  title,
  done,
  children,
}: {
  n: number;
  id: string;
  title: string;
  done: boolean;
  children: preact.ComponentChildren;
}) {
  return (
    <section class="card" id={`part-${id}`} aria-label={title}>
      <div class="section-head">
        <span class={`n${done ? ' done' : ''}`} aria-hidden="true">
          {done ? <Icon name="check" size={16} /> : n}
        </span>
        <h2>{title}</h2>
      </div>
      {children}
    </section>
  );
}
