import { useMemo } from 'preact/hooks';
import { Store } from '@/api/store';
import type { FineTuningJob } from '@/api/types';
import { CellMap } from '@/charts/cell_map';
import { LineChart, type ChartLine, type ChartMark, type Range } from '@/charts/line_chart';
import { smooth } from '@/model/decimate';
import { count, figure, loss, percent } from '@/model/format';
import type { JobSeries, LayerRow } from '@/model/series';
import { isTerminal } from '@/model/states';
import { Empty } from '@/ui/parts';
import type { JobLive } from './job_live';

const signs = { checkpoint: '◇', best: '◆', warning: '!', restart: '↻', stopped: '■' } as const;

// "rises from a to b", for those who do not see the curve.
function course(name: string, y: Float64Array, format: (value: number) => string): string {
  const finite = y.filter(Number.isFinite);
  if (finite.length === 0) return `${name}: nothing yet.`;
  const first = finite[0]!,
    last = finite[finite.length - 1]!;
  if (finite.length === 1) return `${name}: ${format(last)}.`;
  const way = last < first ? 'falls' : last > first ? 'rises' : 'stays';
  return way === 'stays' ? `${name} stays at ${format(last)}.` : `${name} ${way} from ${format(first)} to ${format(last)}.`;
}

const empty = new Float64Array(0);

export function JobCurves({ live, job }: { live: JobLive; job: FineTuningJob }) {
  const zoom = useMemo(() => new Store<Range>(undefined), [live.series]);
  const { series, version } = live;
  if (series.step.length === 0 && series.eval_step.length === 0) {
    return (
      <div class="card">
        <Empty icon="evaluate" title="No curves yet">
          <p>
            {isTerminal(job.state)
              ? 'This job ended before its first update.'
              : 'Loss, λ and the rest appear here with the first update, and grow while you watch.'}
          </p>
        </Empty>
      </div>
    );
  }
  return <Curves series={series} version={version} zoom={zoom} sync={job.id} />;
}

function Curves({ series, version, zoom, sync }: { series: JobSeries; version: number; zoom: Store<Range>; sync: string }) {
  const marks: ChartMark[] = series.marks.map((mark) => ({
    x: mark.step,
    sign: signs[mark.kind],
    text: mark.text,
    often: mark.kind === 'checkpoint' || mark.kind === 'best',
  }));
  const common = { version, zoom, sync, marks };
  const step = series.step.view();
  const evals = series.eval_step.view();
  const valid = series.valid_loss.view();
  const train = series.train_loss.view();
  const many = step.length > 120;
  const span = Math.max(5, step.length / 50);
  const mean = useMemo(() => (many ? smooth(train, span) : empty), [version, many]);
  const lossLines: ChartLine[] = [
    { label: 'training rows', x: step, y: train, colour: 'muted', width: many ? 1 : 1.5, dash: many ? [] : [5, 4], faint: many },
    ...(many ? [{ label: 'smoothed', x: step, y: mean, colour: 'base', width: 2, dash: [7, 4] } satisfies ChartLine] : []),
    { label: 'held-out rows', x: evals, y: valid, colour: 'accent', width: 2.4, points: evals.length < 40 },
  ];
  const one = (label: string, y: Float64Array): ChartLine[] => [{ label, x: step, y, colour: 'accent', width: 1.6 }];
  const noisy = (label: string, y: Float64Array): ChartLine[] =>
    many
      ? [
          { label, x: step, y, colour: 'muted', width: 1, faint: true },
          { label: 'smoothed', x: step, y: smooth(y, span), colour: 'accent', width: 2 },
        ]
      : one(label, y);
  const best = valid.length > 0 ? Math.min(...valid.filter(Number.isFinite)) : NaN;
  const lambda = series.lambda_mean.view();
  const branch = series.branch_ratio.view();
  return (
    <div class="stack">
      <LineChart
        {...common}
        title="Loss"
        format={(v) => loss(v).slice(0, 6)}
        lines={lossLines}
        summary={`${course('Held-out loss', valid, loss)} Lowest ${loss(best)}. ${course('Training loss', many ? mean : train, loss)}`}
      />
      {marks.length > 0 && (
        <p class="small muted">
          ◇ checkpoint · ◆ best checkpoint so far{series.marks.some((m) => m.kind === 'restart') && ' · ↻ new attempt'}
          {series.marks.some((m) => m.kind === 'warning') && ' · ! watchdog'}
          {series.marks.some((m) => m.kind === 'stopped') && ' · ■ early stop'}. Drag over a curve to look closer, double-click to see all.
        </p>
      )}
      <div class="grid wide">
        <LineChart
          {...common}
          title="λ, mean over layers"
          format={(v) => figure(v, 3)}
          lines={one('λ', lambda)}
          summary={course('How strongly the subtraction acts', lambda, (v) => figure(v, 3))}
        />
        <LineChart
          {...common}
          title="Branch ratio"
          format={(v) => percent(v, 2)}
          lines={[{ label: 'ratio', x: evals, y: branch, colour: 'accent', points: evals.length < 40, width: 2 }]}
          summary={course('Share of the heads’ output that the branch changes', branch, (v) => percent(v, 2))}
        />
        <LayerMap title="λ by layer" rows={series.layers} pick={(row) => row.lambda} format={(v) => figure(v, 3)} version={version} />
        <LayerMap
          title="Branch ratio by layer"
          rows={series.layers}
          pick={(row) => row.branch_ratio}
          format={(v) => percent(v, 2)}
          version={version}
        />
        <LineChart
          {...common}
          title="Learning rate"
          format={(v) => figure(v, 3)}
          lines={one('rate', series.learning_rate.view())}
          summary={course('Learning rate', series.learning_rate.view(), (v) => figure(v, 3))}
        />
        <LineChart
          {...common}
          title="Gradient norm"
          format={(v) => figure(v, 3)}
          lines={noisy('norm', series.grad_norm.view())}
          summary={course('Gradient norm before clipping', series.grad_norm.view(), (v) => figure(v, 3))}
        />
        <LineChart
          {...common}
          title="Speed, tokens a second"
          format={(v) => count(v)}
          lines={noisy('tokens/s', series.tokens_per_second.view())}
          summary={course('Speed', series.tokens_per_second.view(), count)}
        />
      </div>
    </div>
  );
}

// A column an evaluation, a row a layer; of many evaluations at most 60, evenly chosen.
function LayerMap({
  title,
  rows,
  pick,
  format,
  version,
}: {
  title: string;
  rows: LayerRow[];
  pick: (row: LayerRow) => number[];
  format: (value: number) => string;
  version: number;
}) {
  const made = useMemo(() => {
    const filled = rows.filter((row) => pick(row).length > 0);
    const every = Math.max(1, Math.ceil(filled.length / 60));
    const shown = filled.filter((_, i) => i % every === 0 || i === filled.length - 1);
    const layers = Math.max(0, ...shown.map((row) => pick(row).length));
    const values = Array.from({ length: layers }, (_, layer) => shown.map((row) => pick(row)[layer] ?? NaN));
    return { columns: shown.map((row) => count(row.step)), layers, values };
  }, [rows, rows.length, version]);
  if (made.layers === 0) return null;
  const last = made.values.map((row) => row[row.length - 1]!);
  const finite = last.filter(Number.isFinite);
  const top = last.indexOf(Math.max(...finite));
  const summary =
    finite.length === 0
      ? 'No layer has a branch.'
      : `After update ${made.columns[made.columns.length - 1]}: from ${format(Math.min(...finite))} to ${format(Math.max(...finite))}, most in layer ${top}.`;
  return (
    <CellMap
      title={title}
      summary={summary}
      rows={made.values.map((_, i) => String(i))}
      columns={made.columns}
      rowName="layer"
      columnName="update"
      values={made.values}
      format={format}
      cell={Math.max(6, Math.min(16, 240 / made.layers))}
      flip
    />
  );
}
