export type Rgb = [number, number, number];

export function rgbOf(hex: string): Rgb {
  const n = parseInt(hex.replace('#', ''), 16);
  return [(n >> 16) & 255, (n >> 8) & 255, n & 255];
}

// A colour between three, and black or white, whichever can be read on it.
export function mix([a, b, c]: [Rgb, Rgb, Rgb], share: number): { text: string; ink: string } {
  const s = Math.max(0, Math.min(1, share));
  const [from, to, t] = s < 0.5 ? [a, b, s * 2] : [b, c, s * 2 - 1];
  const rgb = from.map((v, i) => Math.round(v + (to[i]! - v) * t)) as Rgb;
  return { text: `rgb(${rgb.join(' ')})`, ink: luminance(rgb) > 0.2 ? '#14171f' : '#ffffff' };
}

export function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4)) as Rgb;
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

// The ends of a scale: given, or the values'; of a diverging one equally far from 0.
export function extent(values: number[], diverging: boolean, low?: number, high?: number): [number, number] {
  let least = Infinity,
    most = -Infinity;
  for (const value of values) {
    if (!Number.isFinite(value)) continue;
    if (value < least) least = value;
    if (value > most) most = value;
  }
  if (least > most) return [low ?? NaN, high ?? NaN];
  if (diverging) {
    const far = Math.max(Math.abs(least), Math.abs(most)) || 1;
    return [low ?? -far, high ?? far];
  }
  return [low ?? least, high ?? most];
}
