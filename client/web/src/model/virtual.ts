export interface Window {
  first: number; // index of the first row to draw
  last: number; // one behind the last
  before: number; // pixels above the first
  total: number; // pixels of all rows
}

// Which rows of equal height can be seen, with `overscan` more on either side. `scrolled`: pixels of the list that are
// above the view; may be negative, where the list begins below its top.
export function windowOf(scrolled: number, view: number, rowHeight: number, rows: number, overscan = 6): Window {
  const total = rows * rowHeight;
  const first = Math.max(0, Math.min(rows, Math.floor(scrolled / rowHeight) - overscan));
  const last = Math.max(first, Math.min(rows, Math.ceil((scrolled + view) / rowHeight) + overscan));
  return { first, last, before: first * rowHeight, total };
}

// How far to scroll so that row `index` is in the view, below `margin` pixels at its top; the same where it is.
export function scrollFor(index: number, scrolled: number, view: number, rowHeight: number, margin = 0): number {
  const top = index * rowHeight;
  if (top < scrolled + margin) return top - margin;
  if (top + rowHeight > scrolled + view) return top + rowHeight - view;
  return scrolled;
}
