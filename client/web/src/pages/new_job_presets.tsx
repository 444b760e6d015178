import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Preset } from '@/api/types';
import { flatten, plainValue, type Entry } from '@/model/flatten';
import { figure } from '@/model/format';
import { Choices } from '@/ui/form';
import { Badge, Loading } from '@/ui/parts';

const automatic: Preset = {
  name: 'auto',
  version: '',
  summary: 'By the size of the model. The one to begin with.',
  sources: {},
  paper_method: false,
  spec: undefined,
};

// A preset's card says in a line by what it differs; what the chosen one sets on this model stands below, whole.
export function PresetCards({
  presets,
  model,
  value,
  onValue,
}: {
  presets: Preset[] | undefined;
  model: string;
  value: string;
  onValue: (value: string) => void;
}) {
  if (!presets) return <Loading what="the presets" />;
  const shown = presets.some((preset) => preset.name === 'auto') ? presets : [automatic, ...presets];
  return (
    <div class="stack tight">
      <Choices
        legend="Preset"
        value={value}
        onValue={onValue}
        choices={shown.map((preset) => ({
          value: preset.name,
          title: (
            <>
              {preset.name === 'auto' ? 'auto' : preset.name.replace('_', ' ')}
              {preset.name === 'auto' && (
                <Badge tone="good" icon="check">
                  advised
                </Badge>
              )}
              {preset.paper_method && <Badge tone="accent">as published</Badge>}
            </>
          ),
          more: (
            <>
              <span class="small muted">{preset.summary}</span>
              <span class="small num">{gist(preset)}</span>
            </>
          ),
        }))}
      />
      <Sets name={value} model={model} listed={presets.find((preset) => preset.name === value)} />
    </div>
  );
}

const valuesOf = (preset: Preset) =>
  new Map(flatten(preset.spec).map(({ path, value }) => [path, plainValue(path, value).toLowerCase().replace(/_/g, ' ')]));

// "λ 0.05 → 0.65 · heads by threshold, τ 1.8 · rate 5e−5"
function gist(preset: Preset): string {
  const values = valuesOf(preset);
  const start = values.get('dex.lambda.start'),
    end = values.get('dex.lambda.end');
  const tau = values.get('dex.head_selection.tau'),
    fraction = values.get('dex.head_selection.fraction');
  const heads = values.get('dex.head_selection.criterion');
  const rate = values.get('hyperparameters.learning_rate');
  return [
    start !== undefined && end !== undefined
      ? `λ ${figure(start)} → ${figure(end)}`
      : values.get('dex.lambda.schedule')
        ? `λ by ${values.get('dex.lambda.schedule')}`
        : '',
    heads ? `heads by ${heads}${tau ? `, τ ${figure(tau)}` : fraction ? `, ${figure(fraction)} of each layer` : ''}` : '',
    rate ? `rate ${figure(rate)}` : '',
  ]
    .filter(Boolean)
    .join(' · ');
}

function Sets({ name, model, listed }: { name: string; model: string; listed: Preset | undefined }) {
  const asked = usePoll(`preset ${name} ${model}`, (signal) => call('ModelService/GetPreset', { name, model }, signal));
  const preset = asked.data ?? listed;
  if (!preset) return null;
  const entries = flatten(preset.spec);
  return (
    <details class="more">
      <summary>
        Everything that {preset.version || name} sets{model && asked.data ? ` on ${model}` : ''} ({entries.length} values)
      </summary>
      <ul class="preset-sets">
        {entries.map((entry) => (
          <Line key={entry.path} entry={entry} source={preset.sources[entry.path]} />
        ))}
      </ul>
    </details>
  );
}

function Line({ entry, source }: { entry: Entry; source: string | undefined }) {
  const from = { paper: 'from the paper', brief: 'from the project’s brief', ours: 'our choice' }[source ?? ''] ?? '';
  return (
    <li>
      <code>{entry.path}</code>
      <b>
        {plainValue(entry.path, entry.value).toLowerCase()} {from && <span class="muted small">({from})</span>}
      </b>
    </li>
  );
}
