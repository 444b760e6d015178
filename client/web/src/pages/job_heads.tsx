import { useMemo, useState } from 'preact/hooks';
import type { FineTuningJob, HeadSelectionComplete, HeadSelectionReport } from '@/api/types';
import { CellMap } from '@/charts/cell_map';
import { figure, num, percent, plural } from '@/model/format';
import { isTerminal } from '@/model/states';
import { Empty, Note } from '@/ui/parts';
import type { JobLive } from './job_live';

interface Selection {
  criterion: string;
  step: number;
  ratio: number;
  unit: string;
  layers: { entropy: number[]; importance: number[]; selected: Set<number>; chosenBy: string[] }[];
  warnings: string[];
}

export function selectionOf(report: HeadSelectionReport | HeadSelectionComplete): Selection {
  return {
    criterion: report.criterion,
    step: report.step,
    ratio: num(report.selected_ratio),
    unit: 'calibration' in report ? (report.calibration?.entropy_unit ?? 'nats') : 'nats',
    layers: report.layers.map((layer) => ({
      entropy: layer.entropy.map(num),
      importance: layer.importance.map(num),
      selected: new Set(layer.selected),
      chosenBy: 'chosen_by' in layer ? layer.chosen_by : [],
    })),
    warnings: 'warnings' in report ? report.warnings : [],
  };
}

const criteria: Record<string, string> = {
  ENTROPY: 'the heads whose attention is spread widest (highest entropy)',
  IMPORTANCE: 'the heads that matter least to the output',
  THRESHOLD: 'heads that pass a threshold of entropy or importance',
  ALL: 'all heads',
  EXPLICIT: 'the heads that you named',
};

export function JobHeads({ live, job }: { live: JobLive; job: FineTuningJob }) {
  const told = useMemo(
    () => live.events.flatMap((event) => (event.head_selection_complete ? [event.head_selection_complete] : [])),
    [live.events.length],
  );
  const report = job.head_selection ?? told[told.length - 1];
  if (!report) {
    const text = isTerminal(job.state)
      ? 'This job’s method has no branch, or it ended before heads were chosen.'
      : 'Before training, a worker measures every attention head on your rows and chooses those that DEX acts on.';
    return (
      <div class="card">
        <Empty icon="adapters" title="No heads chosen">
          <p>{text}</p>
        </Empty>
      </div>
    );
  }
  return <HeadGrid selection={selectionOf(report)} times={told.length} />;
}

// Layer by head: what was measured, and a ring around those that are chosen.
export function HeadGrid({ selection, times = 1 }: { selection: Selection; times?: number }) {
  const { layers } = selection;
  const scores = [
    { key: 'entropy' as const, name: 'Entropy', text: `How widely each head spreads its attention, in ${selection.unit}.` },
    { key: 'importance' as const, name: 'Importance', text: 'How much each head moves the output.' },
  ].filter(({ key }) => layers.some((layer) => layer[key].length > 0));
  const [shown, setShown] = useState(scores[0]?.key ?? 'entropy');
  const heads = Math.max(
    1,
    ...layers.map((layer) => Math.max(layer.entropy.length, layer.importance.length, ...[...layer.selected].map((head) => head + 1))),
  );
  const total = layers.reduce((sum, layer) => sum + layer.selected.size, 0);
  const values = layers.map((layer) => Array.from({ length: heads }, (_, head) => layer[shown][head] ?? NaN));
  const marked = layers.map((layer) => Array.from({ length: heads }, (_, head) => layer.selected.has(head)));
  const score = scores.find(({ key }) => key === shown);
  const busiest = layers.reduce((best, layer, i) => (layer.selected.size > layers[best]!.selected.size ? i : best), 0);
  return (
    <div class="stack">
      <p>
        DEX acts on <strong>{plural(total, 'head')}</strong> ({percent(selection.ratio)}) of {layers.length} layers × {heads}:{' '}
        {criteria[selection.criterion] ?? selection.criterion.toLowerCase()}.
        {selection.step > 0 && (
          <>
            {' '}
            Last chosen before update {selection.step}
            {times > 1 ? `, ${times} times in all` : ''}.
          </>
        )}
      </p>
      {selection.warnings.map((text) => (
        <Note tone="warn" key={text}>
          {text}
        </Note>
      ))}
      {scores.length > 1 && (
        <div class="chips" role="group" aria-label="Score">
          {scores.map(({ key, name }) => (
            <button key={key} type="button" class="chip" aria-pressed={shown === key} onClick={() => setShown(key)}>
              {name}
            </button>
          ))}
        </div>
      )}
      <CellMap
        title={score ? `${score.name} of every head` : 'Chosen heads'}
        summary={`${score?.text ?? ''} ${plural(total, 'head')} chosen, most in layer ${busiest} (${layers[busiest]?.selected.size ?? 0}).`}
        rows={layers.map((_, i) => String(i))}
        columns={Array.from({ length: heads }, (_, i) => String(i))}
        rowName="layer"
        columnName="head"
        values={values}
        marked={marked}
        format={(v) => figure(v, 3)}
        cell={Math.max(12, Math.min(22, 480 / layers.length))}
      />
    </div>
  );
}
