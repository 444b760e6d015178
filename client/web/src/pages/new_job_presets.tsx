import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Preset } from '@/api/types';
import { flatten, plainValue } from '@/model/flatten';
import { Badge, Choices, Loading } from '@/ui/parts';

// The values by which presets differ, in words. Everything else is under Configuration of the job.
const told: [path: string, name: string][] = [
  ['dex.lambda.schedule', 'λ schedule'], ['dex.lambda.start', 'λ from'], ['dex.lambda.end', 'λ to'], ['dex.lambda.value', 'λ'], ['dex.head_selection.criterion', 'heads by'], ['dex.head_selection.fraction', 'share of heads'],
  ['dex.head_selection.tau', 'τ'], ['dex.projection', 'projection'], ['hyperparameters.learning_rate', 'learning rate'], ['hyperparameters.branch_learning_rate', 'branch rate'],
  ['hyperparameters.max_seq_length', 'tokens a row'], ['hyperparameters.truncation', 'long rows'], ['hyperparameters.group_by', 'rows drawn by'], ['hyperparameters.n_epochs', 'passes'],
];

export function PresetCards({ presets, model, value, onValue }: { presets: Preset[] | undefined; model: string; value: string; onValue: (value: string) => void }) {
  // With the model, what a job on it would start from.
  const names = (presets ?? []).map((preset) => preset.name);
  const resolved = usePoll(`presets for ${model} ${names.join()}`, async (signal) => {
    const list = await Promise.all(names.map((name) => call('ModelService/GetPreset', { name, model }, signal).catch(() => undefined)));
    return new Map(list.flatMap((preset, i) => (preset ? [[names[i]!, preset] as const] : [])));
  });
  if (!presets) return <Loading what="the presets" />;
  const shown = presets.some((preset) => preset.name === 'auto') ? presets : [automatic, ...presets];
  return (
    <Choices legend="Preset" value={value} onValue={onValue} choices={shown.map((preset) => ({
      value: preset.name,
      title: <>{preset.name === 'auto' ? 'auto (advised)' : preset.name.replace('_', ' ')}{preset.paper_method && <Badge tone="accent">as published</Badge>}</>,
      more: <><span class="small muted">{preset.summary}</span><Sets preset={resolved.data?.get(preset.name) ?? preset} /></>,
    }))} />
  );
}

const automatic = { name: 'auto', version: '', summary: 'By the size of the model. The one to begin with.', sources: {}, paper_method: false, spec: undefined } satisfies Preset;

function Sets({ preset }: { preset: Preset }) {
  const values = new Map(flatten(preset.spec).map(({ path, value }) => [path, plainValue(path, value)]));
  const rows = told.flatMap(([path, name]) => (values.has(path) ? [[name, values.get(path)!.toLowerCase().replace(/_/g, ' ')] as const] : []));
  if (rows.length === 0) return null;
  return <ul class="preset-sets">{rows.map(([name, value]) => <li key={name}><span>{name}</span><b>{value}</b></li>)}</ul>;
}
