import type { EvaluationRow } from '@/api/types';
import { extent, luminance, mix, rgbOf } from '@/charts/colours';
import { difference, dimsText, figuresOf, needleGrids } from '@/model/evaluation_rows';
import { parseRoute, to } from '@/ui/route';

const row = (subject: string, value: number, dims: Record<string, string>, metric = 'accuracy') =>
  ({
    task: 'multi_needle',
    subject,
    metric,
    dims,
    value,
  }) as unknown as EvaluationRow;

describe('results', () => {
  it('puts the subjects of one figure together', () => {
    const figures = figuresOf({
      rows: [row('base', 1, {}), row('a', 2, {}), row('base', 3, { depth: '0', length: '1' }), row('a', 4, { length: '1', depth: '0' })],
    });
    expect(figures.map((figure) => figure.rows.map((one) => one.value))).toEqual([
      [1, 2],
      [3, 4],
    ]);
    expect(dimsText({ length_bucket: '64-127' })).toBe('length bucket 64-127');
  });
  it('makes a grid for each number of needles, by number, with holes where nothing was measured', () => {
    const rows = [
      row('base', 0.5, { length: '2048', depth: '0', needles: '6' }),
      row('base', 0.9, { length: '1024', depth: '100', needles: '6' }),
      row('base', 1, { length: '1024', depth: '0', needles: '12' }),
      row('base', 1, {}),
    ];
    const grids = needleGrids({ rows });
    expect(grids.map((grid) => grid.needles)).toEqual(['6', '12']);
    expect(grids[0]).toMatchObject({
      lengths: ['1024', '2048'],
      depths: ['0', '100'],
    });
    expect(grids[0]!.bySubject.get('base')).toEqual([
      [NaN, 0.5],
      [0.9, NaN],
    ]);
    expect(difference([[1, NaN]], [[3, 2]])).toEqual([[2, NaN]]);
  });
});

describe('colours', () => {
  it('put the middle of a difference at nothing', () => {
    expect(extent([-1, 3, NaN], true)).toEqual([-3, 3]);
    expect(extent([2, 5], false)).toEqual([2, 5]);
    expect(extent([NaN], false)[0]).toBeNaN();
  });
  it('write on every cell in what can be read there', () => {
    const stops = [rgbOf('#e9e8fb'), rgbOf('#8f86ea'), rgbOf('#2c2192')] as [
      ReturnType<typeof rgbOf>,
      ReturnType<typeof rgbOf>,
      ReturnType<typeof rgbOf>,
    ];
    for (let share = 0; share <= 1; share += 0.05) {
      const { text, ink } = mix(stops, share);
      const [r, g, b] = text.match(/\d+/g)!.map(Number) as [number, number, number];
      const [high, low] = [luminance([r, g, b]), luminance(rgbOf(ink))].sort((a, b) => b - a) as [number, number];
      expect((high + 0.05) / (low + 0.05)).toBeGreaterThan(4.2);
    }
  });
});

describe('addresses', () => {
  it('come back as they were, whatever an id holds', () => {
    const hash = to(['adapters', 'ft:a:default:b/c?:01'], {
      tab: 'x y',
      none: '',
    });
    expect(parseRoute(hash).path).toEqual(['adapters', 'ft:a:default:b/c?:01']);
    expect(parseRoute(hash).query.get('tab')).toBe('x y');
    expect(parseRoute('').path).toEqual([]);
    expect(parseRoute('#/jobs/%E0%A4%A').path).toEqual(['jobs', '%E0%A4%A']);
  });
});
