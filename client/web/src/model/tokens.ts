// How several texts differ, token by token, on the tokens' ids: which tokens of each are not in the longest common
// subsequence with the first. Myers' greedy algorithm, O((n+m)·d).
export interface Difference {
  same: boolean[][]; // of each side, of each token: it is in the first side's text too, in this order
  first: number; // index of the first token that is not the same everywhere; -1: all sides are equal
}

export function differences(sides: number[][]): Difference {
  const base = sides[0] ?? [];
  const same: boolean[][] = sides.map((side) => new Array<boolean>(side.length).fill(false));
  let first = -1;
  const longest = Math.max(0, ...sides.map((side) => side.length));
  for (let i = 0; i < longest && first < 0; i++) if (sides.some((side) => side[i] !== base[i])) first = i;
  const inAll = new Array<number>(base.length).fill(0);
  for (let s = 1; s < sides.length; s++) {
    for (const [a, b] of commonTokens(base, sides[s]!)) {
      same[s]![b] = true;
      inAll[a] = inAll[a]! + 1;
    }
  }
  for (let a = 0; a < base.length; a++) same[0]![a] = inAll[a] === sides.length - 1;
  return { same, first };
}

// Pairs of equal tokens in order, as many as there can be.
export function commonTokens(a: number[], b: number[]): [number, number][] {
  const n = a.length,
    m = b.length,
    most = n + m;
  const offset = most + 1;
  const furthest = new Int32Array(2 * most + 3);
  const trace: Int32Array[] = [];
  outer: for (let d = 0; d <= most; d++) {
    trace.push(furthest.slice());
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && furthest[offset + k - 1]! < furthest[offset + k + 1]!);
      let x = down ? furthest[offset + k + 1]! : furthest[offset + k - 1]! + 1;
      let y = x - k;
      while (x < n && y < m && a[x] === b[y]) (x++, y++);
      furthest[offset + k] = x;
      if (x >= n && y >= m) break outer;
    }
  }
  const pairs: [number, number][] = [];
  let x = n,
    y = m;
  for (let d = trace.length - 1; d >= 0; d--) {
    const before = trace[d]!;
    const k = x - y;
    const down = k === -d || (k !== d && before[offset + k - 1]! < before[offset + k + 1]!);
    const previous = down ? k + 1 : k - 1;
    const fromX = d === 0 ? 0 : before[offset + previous]!;
    const fromY = d === 0 ? 0 : fromX - previous;
    while (x > fromX && y > fromY && x > 0 && y > 0 && a[x - 1] === b[y - 1]) pairs.push([--x, --y]);
    x = fromX;
    y = fromY;
  }
  return pairs.reverse();
}
