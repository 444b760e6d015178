// Numbers and times as people read them. Protobuf JSON has int64 as text and NaN, Infinity as words: all take both.
export type Numeric = number | string | undefined | null;

export function num(value: Numeric): number {
  if (value === undefined || value === null || value === '') return NaN;
  return Number(value);
}

const grouped = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
export const dash = '–';

export function count(value: Numeric): string {
  const n = num(value);
  return Number.isFinite(n) ? grouped.format(n) : dash;
}

// 1.2 k, 134.5 M: three digits that matter.
export function short(value: Numeric): string {
  const n = num(value);
  if (!Number.isFinite(n)) return dash;
  for (const [size, unit] of [
    [1e12, 'T'],
    [1e9, 'B'],
    [1e6, 'M'],
    [1e3, 'k'],
  ] as const) {
    if (Math.abs(n) >= size * 0.9995) return `${trim(n / size)} ${unit}`;
  }
  return trim(n);
}

function trim(n: number): string {
  return String(Number(n.toPrecision(3)));
}

export function bytes(value: Numeric): string {
  const n = num(value);
  if (!Number.isFinite(n)) return dash;
  if (n < 1000) return `${n} B`;
  let i = -1;
  let size = n;
  do {
    size /= 1000;
    i++;
  } while (size >= 999.5 && i < 4);
  return `${size >= 100 ? size.toFixed(0) : size.toPrecision(2)} ${['kB', 'MB', 'GB', 'TB', 'PB'][i]}`;
}

// A length of time: the two largest units.
export function duration(seconds: Numeric): string {
  const n = num(seconds);
  if (!Number.isFinite(n) || n < 0) return dash;
  if (n < 1) return n === 0 ? '0 s' : 'under 1 s';
  const s = Math.round(n);
  const parts: [number, string][] = [
    [Math.floor(s / 86400), 'd'],
    [Math.floor(s / 3600) % 24, 'h'],
    [Math.floor(s / 60) % 60, 'min'],
    [s % 60, 's'],
  ];
  const first = parts.findIndex(([amount]) => amount > 0);
  return parts
    .slice(first, first + 2)
    .filter(([amount]) => amount > 0)
    .map(([amount, unit]) => `${amount} ${unit}`)
    .join(' ');
}

// A figure whose size is not known beforehand: four digits that matter, small ones with a power of ten.
export function figure(value: Numeric, digits = 4): string {
  const n = num(value);
  if (Number.isNaN(n)) return dash;
  if (!Number.isFinite(n)) return n > 0 ? '∞' : '−∞';
  if (n === 0) return '0';
  const size = Math.abs(n);
  if (size < 1e-4 || size >= 1e6) {
    const [mantissa, power] = n.toExponential(Math.max(0, digits - 2)).split('e') as [string, string];
    return minus(`${Number(mantissa)}e${minus(power.replace('+', ''))}`);
  }
  return minus(String(Number(n.toPrecision(digits))));
}

export function loss(value: Numeric): string {
  const n = num(value);
  return Number.isFinite(n) ? minus(n.toFixed(4)) : figure(value);
}

export function signed(value: Numeric, digits = 3): string {
  const n = num(value);
  if (!Number.isFinite(n)) return dash;
  return n > 0 ? `+${figure(n, digits)}` : figure(n, digits);
}

function minus(text: string): string {
  return text.replace(/^-/, '−');
}

export function percent(ratio: Numeric, digits = 0): string {
  const n = num(ratio);
  return Number.isFinite(n) ? minus(`${(n * 100).toFixed(digits)} %`) : dash;
}

export function time(value: string | undefined): Date | undefined {
  if (!value) return undefined;
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? undefined : date;
}

export function clock(value: string | number | Date | undefined): string {
  if (value === undefined || value === '') return dash;
  const date = new Date(value);
  return Number.isNaN(date.getTime()) ? dash : date.toLocaleTimeString('en-GB');
}

export function moment(value: string | undefined): string {
  const date = time(value);
  return date ? `${date.toLocaleDateString('en-GB', { day: 'numeric', month: 'short', year: 'numeric' })}, ${clock(date)}` : dash;
}

export function ago(value: string | number | undefined, now = Date.now()): string {
  if (value === undefined || value === '') return dash;
  const then = typeof value === 'number' ? value : new Date(value).getTime();
  if (Number.isNaN(then)) return dash;
  const seconds = Math.max(0, (now - then) / 1000);
  if (seconds < 10) return 'just now';
  if (seconds < 60) return `${Math.round(seconds)} s ago`;
  if (seconds < 3600) return `${Math.round(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.round(seconds / 3600)} h ago`;
  const days = Math.round(seconds / 86400);
  return days === 1 ? 'yesterday' : days < 60 ? `${days} days ago` : moment(new Date(then).toISOString());
}

// "JOB_STATE_QUEUED" → "queued"; "TRAIN_KVO_DEX" with prefix TRAIN → "kvo dex".
export function word(value: string | undefined, prefix = ''): string {
  if (!value) return '';
  const bare = prefix && value.startsWith(`${prefix}_`) ? value.slice(prefix.length + 1) : value;
  return bare === 'UNSPECIFIED' ? '' : bare.toLowerCase().replace(/_/g, ' ');
}

// The end of a long id, which is where ids differ.
export function tail(id: string | undefined, length = 6): string {
  return id ? `…${id.slice(-length)}` : '';
}

export function plural(n: number, one: string, many = `${one}s`): string {
  return `${count(n)} ${n === 1 ? one : many}`;
}
