import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import uPlot from 'uplot';
import { Store, useStore } from '@/api/store';
import { align, decimate } from '@/model/decimate';
import { count } from '@/model/format';
import { colour, theme } from '@/ui/theme';
import { TableButton } from './table_button';

export interface ChartLine {
  label: string;
  x: Float64Array;
  y: Float64Array;
  colour: 'accent' | 'base' | 'muted' | 'good' | 'warn';
  dash?: number[]; // beside the colour, what tells it from the others
  points?: boolean;
  width?: number;
  faint?: boolean; // behind a smoothed one
}
export interface ChartMark {
  x: number;
  often?: boolean; // left out where many are close together
  sign: string; // one character at the top
  text: string;
}
export type Range = { low: number; high: number } | undefined;

interface Props {
  title: string;
  summary: string; // the chart in a sentence
  lines: ChartLine[];
  version: number; // changes when the numbers do
  format: (value: number) => string;
  zoom: Store<Range>; // charts on one axis share it
  sync: string;
  marks?: ChartMark[];
  xLabel?: string;
}

const height = 200;
// Updates are counted in whole numbers.
const whole = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

// Lines over one axis. Drawn with four points a column of pixels at most, so that 100,000 points cost what a few thousand
// do; drag to zoom in, double-click or the button to see all.
export function LineChart({ title, summary, lines, version, format, zoom, sync, marks = [], xLabel = 'update' }: Props) {
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const [width, setWidth] = useState(0);
  const [asTable, setAsTable] = useState(false);
  const cursor = useMemo(() => new Store<number | undefined>(undefined), []);
  const range = useStore(zoom);
  const shown = useStore(theme);
  const current = useRef({ lines, marks });
  current.current = { lines, marks };
  const shape = lines.map((line) => line.label).join('|');

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, [asTable]);

  useEffect(() => {
    if (!holder.current || width < 40) return;
    const grid = { stroke: colour('line'), width: 1 };
    const axis = { stroke: colour('muted'), grid, ticks: { stroke: colour('line') }, font: '12px Inter, system-ui, sans-serif' };
    const options: uPlot.Options = {
      width,
      height,
      legend: { show: false },
      cursor: { sync: { key: sync }, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, y: false },
      scales: { x: { time: false }, y: { auto: true } },
      axes: [
        { ...axis, values: (_, splits) => splits.map((value) => count(value)), space: 46, size: 30, incrs: whole },
        { ...axis, size: 62, values: (_, splits) => splits.map((value) => format(value)) },
      ],
      series: [
        {},
        ...current.current.lines.map(
          (line): uPlot.Series => ({
            label: line.label,
            stroke: colour(line.colour) + (line.faint ? '59' : ''),
            width: line.width ?? 1.6,
            spanGaps: true,
            ...(line.dash ? { dash: line.dash } : {}),
            points: { show: (_, index) => current.current.lines[index - 1]?.points ?? false, size: 6, fill: colour('surface') },
          }),
        ),
      ],
      hooks: {
        setSelect: [
          (u) => {
            if (u.select.width < 6) return;
            zoom.set({ low: u.posToVal(u.select.left, 'x'), high: u.posToVal(u.select.left + u.select.width, 'x') });
            u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
          },
        ],
        setCursor: [
          (u) => {
            const index = u.cursor.idx;
            cursor.set(index === null || index === undefined || (u.cursor.left ?? -1) < 0 ? undefined : u.data[0][index]);
          },
        ],
        draw: [(u) => drawMarks(u, current.current.marks)],
      },
    };
    const made = new uPlot(options, [[], ...current.current.lines.map(() => [])], holder.current);
    made.over.addEventListener('dblclick', () => zoom.set(undefined));
    plot.current = made;
    return () => {
      made.destroy();
      plot.current = undefined;
    };
  }, [width > 40, asTable, shown, shape, sync]);

  useEffect(() => {
    const made = plot.current;
    if (!made || width < 40) return;
    if (made.width !== width) made.setSize({ width, height });
    const all = lines.map((line) => line.x).filter((x) => x.length > 0);
    const low = range?.low ?? Math.min(...all.map((x) => x[0]!));
    const high = range?.high ?? Math.max(...all.map((x) => x[x.length - 1]!));
    const { x, ys } = align(lines.map((line) => decimate(line.x, line.y, low, high, Math.max(60, width - 70))));
    made.batch(() => {
      made.setData([x, ...ys], false);
      made.setScale('x', { min: low, max: high > low ? high : low + 1 });
    });
  }, [version, width, range, asTable, shown, shape]);

  return (
    <section class="chart card" aria-label={title}>
      <div class="row apart">
        <h3>{title}</h3>
        <div class="row">
          {range && (
            <button type="button" class="button slim quiet" onClick={() => zoom.set(undefined)}>
              Show all
            </button>
          )}
          <TableButton title={title} drawing="Curve" asTable={asTable} onToggle={() => setAsTable(!asTable)} />
        </div>
      </div>
      <p class="summary">{summary}</p>
      {asTable ? (
        <LineTable lines={lines} version={version} format={format} xLabel={xLabel} title={title} />
      ) : (
        <>
          <Legend lines={lines} cursor={cursor} format={format} xLabel={xLabel} />
          <div class="plot" ref={holder} role="img" aria-label={`${title}. ${summary}`} />
        </>
      )}
    </section>
  );
}

// By itself, since it follows the cursor: the chart around it is not drawn anew for that.
function Legend({
  lines,
  cursor,
  format,
  xLabel,
}: Pick<Props, 'lines' | 'format'> & { cursor: Store<number | undefined>; xLabel: string }) {
  const x = useStore(cursor);
  return (
    <div class="legend" aria-hidden="true">
      {lines.map((line) => (
        <span class="item" key={line.label}>
          <Swatch line={line} />
          {line.label} <b>{valueAt(line, x, format)}</b>
        </span>
      ))}
      {x !== undefined && (
        <span class="item muted">
          at {xLabel} {count(x)}
        </span>
      )}
    </div>
  );
}

function Swatch({ line }: { line: ChartLine }) {
  return (
    <svg width="22" height="10" aria-hidden="true">
      <line
        x1="1"
        x2="21"
        y1="5"
        y2="5"
        stroke={`var(--${line.colour})`}
        stroke-opacity={line.faint ? 0.45 : 1}
        stroke-width={Math.max(2, line.width ?? 2)}
        stroke-dasharray={line.dash?.join(' ')}
      />
      {line.points && <circle cx="11" cy="5" r="3" fill="var(--surface)" stroke={`var(--${line.colour})`} stroke-width="1.6" />}
    </svg>
  );
}

// The line's value at x, or its last one before it.
function valueAt(line: ChartLine, x: number | undefined, format: (value: number) => string): string {
  if (line.x.length === 0) return '';
  if (x === undefined) return format(line.y[line.y.length - 1]!);
  let low = 0;
  let high = line.x.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (line.x[middle]! <= x) low = middle + 1;
    else high = middle;
  }
  return low === 0 ? '' : format(line.y[low - 1]!);
}

function drawMarks(u: uPlot, marks: ChartMark[]) {
  const { ctx } = u;
  const ratio = devicePixelRatio;
  const low = u.scales.x!.min ?? 0;
  const high = u.scales.x!.max ?? 0;
  ctx.save();
  ctx.strokeStyle = colour('line-strong');
  ctx.fillStyle = colour('muted');
  ctx.lineWidth = ratio;
  ctx.setLineDash([2 * ratio, 4 * ratio]);
  ctx.font = `${11 * ratio}px Inter, system-ui, sans-serif`;
  ctx.textAlign = 'center';
  let previous = -1e9;
  for (const mark of marks) {
    if (mark.x < low || mark.x > high) continue;
    const x = u.valToPos(mark.x, 'x', true);
    if (mark.often && x - previous < 44 * ratio) continue; // no room for its sign
    previous = x;
    ctx.beginPath();
    ctx.moveTo(x, u.bbox.top + 12 * ratio);
    ctx.lineTo(x, u.bbox.top + u.bbox.height);
    ctx.stroke();
    ctx.fillText(mark.sign, x, u.bbox.top + 9 * ratio);
  }
  ctx.restore();
}

// All points up to 200, else evenly chosen ones, the last among them.
function LineTable({ lines, version, format, xLabel, title }: Pick<Props, 'lines' | 'version' | 'format' | 'title'> & { xLabel: string }) {
  const rows = useMemo(() => {
    const { x, ys } = align(lines);
    const step = Math.max(1, Math.ceil(x.length / 200));
    return x.map((value, i) => ({ value, cells: ys.map((y) => y[i] ?? null), i })).filter(({ i }) => i % step === 0 || i === x.length - 1);
  }, [lines, version]);
  return (
    <div class="chart-table" tabIndex={0} role="region" aria-label={`${title}, table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">{xLabel}</th>
            {lines.map((line) => (
              <th scope="col" class="number" key={line.label}>
                {line.label}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => (
            <tr key={row.value}>
              <th scope="row">{count(row.value)}</th>
              {row.cells.map((cell, i) => (
                <td class="number" key={i}>
                  {cell === null ? '' : format(cell)}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
