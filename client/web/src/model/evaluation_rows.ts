import type { EvaluationResult, EvaluationRow } from '@/api/types';
import { num } from './format';

// Rows of a result that belong to one figure: the baseline's and the others', by metric and dims.
export interface Figure {
  metric: string;
  dims: Record<string, string>;
  rows: EvaluationRow[]; // a subject each, the first subject first
}

const dimsKey = (dims: Record<string, string>) => JSON.stringify(Object.entries(dims).sort());

export function figuresOf(result: Pick<EvaluationResult, 'rows'>): Figure[] {
  const figures = new Map<string, Figure>();
  for (const row of result.rows) {
    const key = `${row.metric} ${dimsKey(row.dims)}`;
    const figure = figures.get(key) ?? { metric: row.metric, dims: row.dims, rows: [] };
    figure.rows.push(row);
    figures.set(key, figure);
  }
  return [...figures.values()];
}

export interface Grid {
  needles: string; // dim, where there are several grids
  lengths: string[];
  depths: string[];
  bySubject: Map<string, number[][]>; // [depth][length]; NaN: not measured
}

const byNumber = (a: string, b: string) => num(a) - num(b);

// Accuracy by length and depth of multi_needle, one grid a number of needles.
export function needleGrids(result: Pick<EvaluationResult, 'rows'>): Grid[] {
  const cells = result.rows.filter((row) => row.metric === 'accuracy' && row.dims.length !== undefined && row.dims.depth !== undefined);
  const needles = [...new Set(cells.map((row) => row.dims.needles ?? ''))].sort(byNumber);
  return needles.map((count) => {
    const mine = cells.filter((row) => (row.dims.needles ?? '') === count);
    const lengths = [...new Set(mine.map((row) => row.dims.length!))].sort(byNumber);
    const depths = [...new Set(mine.map((row) => row.dims.depth!))].sort(byNumber);
    const bySubject = new Map<string, number[][]>();
    for (const row of mine) {
      const grid = bySubject.get(row.subject) ?? depths.map(() => lengths.map(() => NaN));
      grid[depths.indexOf(row.dims.depth!)]![lengths.indexOf(row.dims.length!)] = num(row.value);
      bySubject.set(row.subject, grid);
    }
    return { needles: count, lengths, depths, bySubject };
  });
}

export function difference(a: number[][], b: number[][]): number[][] {
  return b.map((row, r) => row.map((value, c) => value - (a[r]?.[c] ?? NaN)));
}

export function dimsText(dims: Record<string, string>): string {
  return Object.entries(dims)
    .map(([key, value]) => `${key.replace(/_/g, ' ')} ${value}`)
    .join(', ');
}
