import type { JSX } from 'preact';

// Drawn on 20 × 20, in the colour of the text around them.
const paths = {
  home: 'M3 9.5 10 3.5l7 6M5 8.5V16h3.5v-4h3v4H15V8.5',
  jobs: 'M4 5.5h12M4 10h12M4 14.5h7',
  plus: 'M10 4v12M4 10h12',
  data: 'M4 5.5C4 4 6.7 3 10 3s6 1 6 2.5S13.3 8 10 8 4 7 4 5.5zm0 0v9C4 16 6.7 17 10 17s6-1 6-2.5v-9M4 10c0 1.500 2.700 2.500 6 2.500s6-1 6-2.500',
  adapters: 'M10 3 17 6.500 10 10 3 6.500zM3.500 10.300 10 13.500l6.500-3.200M3.500 13.700 10 17l6.500-3.300',
  play: 'M6.500 4.200v11.600L15.800 10z',
  chat: 'M3.500 5a1.500 1.500 0 0 1 1.500-1.500h10A1.500 1.500 0 0 1 16.500 5v7a1.500 1.500 0 0 1-1.500 1.500H9L5.500 17v-3.500H5A1.500 1.500 0 0 1 3.500 12z',
  evaluate: 'M4 16V9.500M8 16V4M12 16V7.500M16 16v-4M2.500 16.500h15',
  platform: 'M4 3.500h12v5H4zM4 11.500h12v5H4zM7 6h.01M7 14h.01M10 6h3M10 14h3',
  key: 'M12.500 3.500a4 4 0 1 1-3.700 5.600L3.500 14.500V17H6v-2h2v-2l1.700-1.700A4 4 0 0 0 12.500 3.500zM13.200 6.800h.01',
  sun: 'M10 6.500a3.500 3.500 0 1 1 0 7 3.500 3.500 0 0 1 0-7zM10 2v1.500M10 16.500V18M2 10h1.500M16.500 10H18M4.300 4.300l1.100 1.100M14.600 14.600l1.100 1.100M4.300 15.700l1.100-1.100M14.600 5.400l1.100-1.100',
  moon: 'M16.500 11.500A6.800 6.800 0 0 1 8.500 3.500a6.800 6.800 0 1 0 8 8z',
  contrast: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 3v14M10 6h5.700M10 10h7M10 14h5.700',
  help: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM7.800 7.800c.2-1.200 1.100-1.800 2.200-1.800 1.300 0 2.300.8 2.300 2 0 1.700-2.300 1.700-2.300 3.500M10 14h.01',
  menu: 'M3.500 6h13M3.500 10h13M3.500 14h13',
  check: 'M4 10.500 8.200 15 16 5.500',
  cross: 'M5 5l10 10M15 5 5 15',
  pause: 'M7 4.500v11M13 4.500v11',
  stop: 'M5.500 5.500h9v9h-9z',
  clock: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 6.500V10l2.500 2',
  warn: 'M10 3.500 17.500 16.500h-15zM10 8v4M10 14.300h.01',
  info: 'M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 9v5M10 6.200h.01',
  dot: 'M10 7a3 3 0 1 1 0 6 3 3 0 0 1 0-6z',
  spin: 'M10 3a7 7 0 1 1-6.600 4.700',
  download: 'M10 3.500v9M6 9l4 4 4-4M4 16.500h12',
  upload: 'M10 13V3.500M6 7.500l4-4 4 4M4 16.500h12',
  trash: 'M4 5.500h12M8 5.500V3.500h4v2M5.500 5.500l.7 11h7.600l.7-11M8.500 8.500v5M11.500 8.500v5',
  copy: 'M7.500 7.500h9v9h-9zM12.500 7.500v-4h-9v9h4',
  search: 'M9 3.500a5.500 5.500 0 1 1 0 11 5.500 5.500 0 0 1 0-11zM13 13l4 4',
  arrow: 'M4 10h12M11 5l5 5-5 5',
  table: 'M3.500 4.500h13v11h-13zM3.500 8.500h13M8.500 4.500v11',
  retry: 'M16 10a6 6 0 1 1-1.800-4.300M16 3v3.500h-3.500',
  better: 'M10 16V4.500M5 9l5-5 5 5',
  worse: 'M10 4v11.500M5 11l5 5 5-5',
  equal: 'M4 8h12M4 12h12',
  save: 'M4 3.500h9.500l3 3v10H4zM7 3.500V8h5.500V3.500M7 16.500V12h6.500v4.500',
};

export type IconName = keyof typeof paths;

// Decoration: what it means is said in words beside it, or by `label`.
export function Icon({
  name,
  size = 18,
  label,
  ...more
}: { name: IconName; size?: number; label?: string } & JSX.SVGAttributes<SVGSVGElement>) {
  return (
    <svg
      viewBox="0 0 20 20"
      width={size}
      height={size}
      fill="none"
      stroke="currentColor"
      stroke-width="1.7"
      stroke-linecap="round"
      stroke-linejoin="round"
      {...(label ? { role: 'img', 'aria-label': label } : { 'aria-hidden': true })}
      {...more}
    >
      <path d={paths[name]} />
    </svg>
  );
}

export function Logo({ size = 30 }: { size?: number }) {
  return (
    <svg viewBox="0 0 32 32" width={size} height={size} aria-hidden="true">
      <rect width="32" height="32" rx="9" fill="var(--accent)" />
      <path d="M9 8.500h6.500a7.500 7.500 0 0 1 0 15H9z" fill="var(--on-accent)" />
      <rect x="11.600" y="14.600" width="7" height="2.800" rx="1.400" fill="var(--accent)" />
    </svg>
  );
}
