import { lowerBound } from './series';

// What a line over [low, high] looks like in `buckets` columns of pixels: of each column its first, smallest, largest and
// last point, in order, so that no peak is lost. Values that are not finite are left out.
export function decimate(xs: Float64Array, ys: Float64Array, low: number, high: number, buckets: number): { x: number[]; y: number[] } {
  const begin = Math.max(0, lowerBound(xs, low) - 1); // the line comes in from outside
  const end = Math.min(xs.length, lowerBound(xs, high) + 1);
  const x: number[] = [];
  const y: number[] = [];
  if (end - begin <= buckets * 4) {
    for (let i = begin; i < end; i++) if (Number.isFinite(ys[i]!)) (x.push(xs[i]!), y.push(ys[i]!));
    return { x, y };
  }
  const width = (end - begin) / buckets;
  for (let bucket = 0; bucket < buckets; bucket++) {
    const from = begin + Math.floor(bucket * width);
    const to = begin + Math.floor((bucket + 1) * width);
    let first = -1,
      last = -1,
      smallest = -1,
      largest = -1;
    for (let i = from; i < to; i++) {
      const value = ys[i]!;
      if (!Number.isFinite(value)) continue;
      if (first < 0) first = i;
      last = i;
      if (smallest < 0 || value < ys[smallest]!) smallest = i;
      if (largest < 0 || value > ys[largest]!) largest = i;
    }
    if (first < 0) continue;
    const chosen = [...new Set([first, smallest, largest, last])].sort((a, b) => a - b);
    for (const i of chosen) (x.push(xs[i]!), y.push(ys[i]!));
  }
  return { x, y };
}

export interface Line {
  x: ArrayLike<number>;
  y: ArrayLike<number>;
}

// Several lines on one rising axis: null where a line has no point.
export function align(lines: Line[]): { x: number[]; ys: (number | null)[][] } {
  const x = [...new Set(lines.flatMap((line) => Array.from(line.x)))].sort((a, b) => a - b);
  const place = new Map(x.map((value, i) => [value, i]));
  const ys = lines.map((line) => {
    const y: (number | null)[] = new Array(x.length).fill(null);
    for (let i = 0; i < line.x.length; i++) y[place.get(line.x[i]!)!] = line.y[i]!;
    return y;
  });
  return { x, ys };
}

// Exponential mean with the weight of `width` points, of the points before too.
export function smooth(ys: ArrayLike<number>, width: number): Float64Array {
  const out = new Float64Array(ys.length);
  const alpha = 2 / (width + 1);
  let mean = NaN;
  for (let i = 0; i < ys.length; i++) {
    const value = ys[i]!;
    if (Number.isFinite(value)) mean = Number.isNaN(mean) ? value : mean + alpha * (value - mean);
    out[i] = mean;
  }
  return out;
}
