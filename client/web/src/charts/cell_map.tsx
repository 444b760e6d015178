import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { useStore } from '@/api/store';
import { colour, theme } from '@/ui/theme';
import { extent, mix, type Rgb, rgbOf } from './colours';
import { TableButton } from './table_button';

export interface CellMapProps {
  title: string;
  summary: string;
  rows: string[];
  columns: string[];
  rowName: string; // "layer"
  columnName: string; // "head"
  values: number[][]; // by row; NaN: there is none
  marked?: boolean[][]; // a ring in the cell
  markName?: string; // "chosen"
  format: (value: number) => string;
  diverging?: boolean; // 0 in the middle
  low?: number; // ends of the scale; else the values'
  high?: number;
  cell?: number; // least height of a cell, pixels
  numbers?: boolean; // write them into the cells
  flip?: boolean; // first row at the bottom
  bare?: boolean; // no card around it
}

const margin = { left: 44, top: 4, right: 14, bottom: 24 };

// A matrix as coloured cells: heads by layer, layers over updates, needles by length and depth.
export function CellMap(props: CellMapProps) {
  const { title, summary, rows, columns, values, marked, format, rowName, columnName } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const holder = useRef<HTMLDivElement>(null);
  const [width, setWidth] = useState(0);
  const [asTable, setAsTable] = useState(false);
  const [at, setAt] = useState<[number, number] | undefined>(undefined);
  const shown = useStore(theme);
  const [low, high] = useMemo(
    () => extent(values.flat(), props.diverging ?? false, props.low, props.high),
    [values, props.low, props.high],
  );
  const cell = Math.max(props.cell ?? 15, 4);
  const height = margin.top + margin.bottom + cell * rows.length;

  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const observer = new ResizeObserver(() => setWidth(Math.floor(element.clientWidth)));
    observer.observe(element);
    return () => observer.disconnect();
  }, [asTable]);

  useEffect(() => {
    if (canvas.current && width > 60) draw(canvas.current, width, height, cell, props, low, high, at);
  }, [width, height, values, marked, shown, low, high, at, asTable]);

  const find = (event: MouseEvent) => {
    const box = canvas.current!.getBoundingClientRect();
    const column = Math.floor(((event.clientX - box.left - margin.left) / (box.width - margin.left - margin.right)) * columns.length);
    const drawn = Math.floor((event.clientY - box.top - margin.top) / cell);
    const row = props.flip ? rows.length - 1 - drawn : drawn;
    setAt(rows[row] !== undefined && columns[column] !== undefined ? [row, column] : undefined);
  };
  const value = at ? (values[at[0]]?.[at[1]] ?? NaN) : NaN;

  return (
    <section class={props.bare ? 'chart' : 'chart card'} aria-label={title}>
      <div class="row apart">
        <h3>{title}</h3>
        <TableButton title={title} drawing="Map" asTable={asTable} onToggle={() => setAsTable(!asTable)} />
      </div>
      <p class="summary">{summary}</p>
      {asTable ? (
        <CellTable {...props} />
      ) : (
        <>
          <div class="cellmap" ref={holder} role="img" aria-label={`${title}. ${summary}`}>
            <canvas ref={canvas} onMouseMove={find} onMouseLeave={() => setAt(undefined)} style={{ height: `${height}px` }} />
          </div>
          <div class="row apart">
            <Scale low={low} high={high} format={format} diverging={props.diverging ?? false} />
            <span class="readout" aria-hidden="true">
              {at ? (
                <>
                  {rowName && `${rowName} ${rows[at[0]]}, `}
                  {columnName} {columns[at[1]]}: <b>{Number.isFinite(value) ? format(value) : 'none'}</b>
                  {marked?.[at[0]]?.[at[1]] ? ` · ${props.markName ?? 'chosen'}` : ''}
                </>
              ) : marked ? (
                <>○ {props.markName ?? 'chosen'}</>
              ) : (
                ''
              )}
            </span>
          </div>
        </>
      )}
    </section>
  );
}

function stops(diverging: boolean): [Rgb, Rgb, Rgb] {
  const names = diverging ? ['diff-low', 'diff-middle', 'diff-high'] : ['map-low', 'map-middle', 'map-high'];
  return names.map((name) => rgbOf(colour(name))) as [Rgb, Rgb, Rgb];
}

function draw(
  canvas: HTMLCanvasElement,
  width: number,
  height: number,
  cell: number,
  props: CellMapProps,
  low: number,
  high: number,
  at: [number, number] | undefined,
) {
  const ratio = window.devicePixelRatio || 1;
  canvas.width = width * ratio;
  canvas.height = height * ratio;
  const ctx = canvas.getContext('2d')!;
  ctx.scale(ratio, ratio);
  const { rows, columns, values } = props;
  const w = (width - margin.left - margin.right) / columns.length;
  const gap = w > 6 && cell > 6 ? 1 : 0;
  const three = stops(props.diverging ?? false);
  const none = colour('map-none');
  ctx.font = '11px Inter, system-ui, sans-serif';
  rows.forEach((_, r) => {
    const y = margin.top + (props.flip ? rows.length - 1 - r : r) * cell;
    columns.forEach((_, c) => {
      const x = margin.left + c * w;
      const value = values[r]?.[c] ?? NaN;
      const share = high > low ? (value - low) / (high - low) : 0.5;
      const fill = Number.isFinite(value) ? mix(three, share) : undefined;
      ctx.fillStyle = fill?.text ?? none;
      ctx.fillRect(x, y, w - gap, cell - gap);
      ctx.fillStyle = ctx.strokeStyle = fill ? fill.ink : colour('muted');
      if (props.numbers && w > 34) {
        ctx.textAlign = 'center';
        ctx.textBaseline = 'middle';
        ctx.fillText(Number.isFinite(value) ? props.format(value) : '–', x + (w - gap) / 2, y + cell / 2);
      }
      if (props.marked?.[r]?.[c]) {
        ctx.lineWidth = 1.8;
        ctx.beginPath();
        ctx.arc(x + (w - gap) / 2, y + (cell - gap) / 2, Math.max(2, Math.min(w, cell) / 2 - 3.2), 0, 2 * Math.PI);
        ctx.stroke();
      }
      if (at && at[0] === r && at[1] === c) {
        ctx.strokeStyle = colour('text');
        ctx.lineWidth = 2;
        ctx.strokeRect(x, y, w - gap, cell - gap);
      }
    });
  });
  labels(ctx, w, height, cell, props);
}

function labels(ctx: CanvasRenderingContext2D, w: number, height: number, cell: number, { rows, columns, flip }: CellMapProps) {
  ctx.fillStyle = colour('muted');
  ctx.textAlign = 'right';
  ctx.textBaseline = 'middle';
  const everyRow = Math.max(1, Math.ceil(14 / cell));
  rows.forEach((row, r) => {
    if (r % everyRow === 0) ctx.fillText(row, margin.left - 7, margin.top + (flip ? rows.length - 1 - r : r) * cell + cell / 2);
  });
  ctx.textAlign = 'center';
  const widest = Math.max(...columns.map((column) => ctx.measureText(column).width)) + 10;
  const everyColumn = Math.max(1, Math.ceil(widest / w));
  columns.forEach((column, c) => {
    if (c % everyColumn === 0) ctx.fillText(column, margin.left + c * w + w / 2, height - margin.bottom / 2);
  });
}

function Scale({ low, high, format, diverging }: { low: number; high: number; format: (value: number) => string; diverging: boolean }) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const shown = useStore(theme);
  useEffect(() => {
    const ctx = canvas.current?.getContext('2d');
    if (!ctx) return;
    const three = stops(diverging);
    for (let i = 0; i < 110; i++) {
      ctx.fillStyle = mix(three, i / 109).text;
      ctx.fillRect(i, 0, 1, 9);
    }
  }, [shown, diverging]);
  if (!Number.isFinite(low)) return <span />;
  return (
    <span class="scale" aria-hidden="true">
      {format(low)}
      <canvas ref={canvas} width={110} height={9} />
      {format(high)}
    </span>
  );
}

function CellTable({ rows, columns, values, marked, format, rowName, columnName, markName = 'chosen', title }: CellMapProps) {
  return (
    <div class="chart-table" tabIndex={0} role="region" aria-label={`${title}, table`}>
      <table>
        <thead>
          <tr>
            <th scope="col">
              {rowName} \ {columnName}
            </th>
            {columns.map((column) => (
              <th scope="col" class="number" key={column}>
                {column}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, r) => (
            <tr key={row}>
              <th scope="row">{row}</th>
              {columns.map((column, c) => {
                const value = values[r]?.[c] ?? NaN;
                return (
                  <td class="number" key={column}>
                    {Number.isFinite(value) ? format(value) : '–'}
                    {marked?.[r]?.[c] ? (
                      <>
                        {' '}
                        ○<span class="hidden"> {markName}</span>
                      </>
                    ) : (
                      ''
                    )}
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
