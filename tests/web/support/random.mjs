// Numbers that are the same in every run (mulberry32).
export function randomOf(seed) {
  let state = seed >>> 0;
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  return {
    next,
    normal: () => Math.sqrt(-2 * Math.log(1 - next())) * Math.cos(2 * Math.PI * next()),
    whole: (most) => Math.floor(next() * most),
    pick: (list) => list[Math.floor(next() * list.length)],
  };
}

const digits = '0123456789abcdefghjkmnpqrstvwxyz';
// 26 characters that sort as `n` does.
export function ulid(n) {
  let text = '';
  for (let rest = n, i = 0; i < 10; i++, rest = Math.floor(rest / 32)) text = digits[rest % 32] + text;
  let tail = '';
  for (let i = 0, state = (n * 2654435761) >>> 0; i < 13; i++, state = (Math.imul(state, 1664525) + 1013904223) >>> 0)
    tail += digits[state >>> 27];
  return `01k${text}${tail}`;
}
