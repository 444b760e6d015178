import { figure } from '@/model/format';

export interface IntervalSide {
  value: number;
  low: number; // NaN: there is no interval
  high: number;
}
export interface IntervalRow {
  label: string;
  base: IntervalSide;
  adapted: IntervalSide;
  verdict: string;
}

// Before and after on one line each, every line with its own scale; whiskers are the intervals. The base is a hollow
// square, the adapted model a filled circle.
export function Intervals({ rows }: { rows: IntervalRow[] }) {
  return (
    <div class="intervals" aria-hidden="true">
      {rows.map((row) => {
        const ends = [row.base, row.adapted].flatMap((side) => [side.value, side.low, side.high]).filter(Number.isFinite);
        const low = Math.min(...ends),
          high = Math.max(...ends);
        const place = (value: number) => `${high > low ? 6 + (88 * (value - low)) / (high - low) : 50}%`;
        const side = (which: IntervalSide, kind: 'base' | 'adapted', y: number) => (
          <g class={kind}>
            {Number.isFinite(which.low) && Number.isFinite(which.high) && (
              <line x1={place(which.low)} x2={place(which.high)} y1={y} y2={y} />
            )}
            <svg x={place(which.value)} y={y} overflow="visible">
              {kind === 'base' ? (
                <rect x="-4.500" y="-4.500" width="9" height="9" fill="var(--surface)" stroke-width="2" />
              ) : (
                <circle r="5" />
              )}
            </svg>
          </g>
        );
        return (
          <div class="line" key={row.label}>
            <div>
              <div class="small wrap-any">{row.label}</div>
              <div class="small muted num">
                {figure(row.base.value)} → {figure(row.adapted.value)}
              </div>
            </div>
            <svg>
              <line class="track" x1="3%" x2="97%" y1="20" y2="20" />
              {side(row.base, 'base', 12)}
              {side(row.adapted, 'adapted', 28)}
            </svg>
          </div>
        );
      })}
    </div>
  );
}
