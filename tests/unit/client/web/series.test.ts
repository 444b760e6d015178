import type { FineTuningEvent } from '@/api/types';
import { align, decimate, smooth } from '@/model/decimate';
import { Column, JobSeries, lowerBound } from '@/model/series';

const metrics = (step: number, more = {}) =>
  ({
    metrics: {
      step,
      train_loss: 3 - step / 100,
      grad_norm: 1,
      learning_rate: 1e-4,
      tokens_per_second: 9,
      lambda_mean: 0.1,
      lambda: [],
      branch_ratio: [],
      ...more,
    },
  }) as unknown as FineTuningEvent;
const evaluated = (step: number, valid_loss: number) =>
  ({
    eval_complete: { step, valid_loss, branch_ratio: 0.01 },
  }) as unknown as FineTuningEvent;

describe('JobSeries', () => {
  it('grows with every event', () => {
    const series = new JobSeries();
    for (let step = 1; step <= 1000; step++) series.add(metrics(step));
    expect(series.step.length).toBe(1000);
    expect([...series.step.view().slice(-2)]).toEqual([999, 1000]);
    expect(series.train_loss.last()).toBeCloseTo(-7);
  });
  it('replaces what a resumed attempt trains again', () => {
    const series = new JobSeries();
    for (let step = 1; step <= 10; step++) series.add(metrics(step));
    series.add(evaluated(5, 2.5));
    series.add(evaluated(10, 2.4));
    series.add({
      job_restarted: {
        reason: 'worker lost',
        attempt: 2,
        checkpoint: 'step-6',
      },
    } as unknown as FineTuningEvent);
    series.add(metrics(7, { train_loss: 99 }));
    expect([...series.step.view()]).toEqual([1, 2, 3, 4, 5, 6, 7]);
    expect(series.train_loss.last()).toBe(99);
    expect([...series.eval_step.view()]).toEqual([5]);
    expect(series.marks).toEqual([{ step: 10, kind: 'restart', text: 'attempt 2: worker lost' }]);
  });
  it('keeps one point where an evaluation is told twice', () => {
    const series = new JobSeries();
    series.add(evaluated(0, 3));
    series.add(evaluated(0, 3));
    expect(series.eval_step.length).toBe(1);
  });
  it('keeps the evaluation when its update is told once more with its layers', () => {
    const series = new JobSeries();
    series.add(metrics(1));
    series.add(metrics(2));
    series.add(evaluated(2, 2.5));
    series.add(metrics(2, { lambda: [0.3], branch_ratio: [0.01], lambda_mean: 0.3 }));
    expect([...series.step.view()]).toEqual([1, 2]);
    expect([...series.eval_step.view()]).toEqual([2]);
    expect(series.lambda_mean.last()).toBe(0.3);
    expect(series.layers).toHaveLength(1);
  });
  it('has NaN where a layer has no branch', () => {
    const series = new JobSeries();
    series.add(metrics(4, { lambda: [0.1, 0.2], branch_ratio: ['NaN', 0.03] }));
    expect(series.layers).toEqual([{ step: 4, lambda: [0.1, 0.2], branch_ratio: [NaN, 0.03] }]);
  });
  it('marks checkpoints, the best of them otherwise', () => {
    const series = new JobSeries();
    series.add({
      checkpoint_save: { checkpoint: 'step-4', step: 4, is_best: false },
    } as unknown as FineTuningEvent);
    series.add({
      checkpoint_save: { checkpoint: 'step-8', step: 8, is_best: true },
    } as unknown as FineTuningEvent);
    expect(series.marks.map((mark) => mark.kind)).toEqual(['checkpoint', 'best']);
  });
});

describe('Column', () => {
  it('keeps its numbers when it grows, and forgets them when it is cut', () => {
    const column = new Column();
    for (let i = 0; i < 5000; i++) column.push(i);
    expect(column.view()[4321]).toBe(4321);
    column.truncate(3);
    expect([...column.view()]).toEqual([0, 1, 2]);
    column.push(7);
    expect(column.last()).toBe(7);
  });
  it('finds the first that is not smaller', () => {
    const values = Float64Array.of(1, 3, 3, 7);
    expect([0, 1, 2, 3, 4, 7, 8].map((x) => lowerBound(values, x))).toEqual([0, 0, 1, 1, 3, 3, 4]);
  });
});

describe('decimate', () => {
  const n = 100_000;
  const xs = Float64Array.from({ length: n }, (_, i) => i);
  const ys = Float64Array.from({ length: n }, (_, i) => Math.sin(i / 500));
  ys[54_321] = 40; // one peak that must be seen
  ys[60_000] = NaN;
  it('makes at most four points a column, in order, and loses no peak', () => {
    const { x, y } = decimate(xs, ys, 0, n, 500);
    expect(x.length).toBeLessThanOrEqual(2000);
    expect(x).toEqual([...x].sort((a, b) => a - b));
    expect(Math.max(...y)).toBe(40);
    expect(Math.min(...y)).toBeCloseTo(-1, 4);
    expect(y.every(Number.isFinite)).toBe(true);
    expect([x[0], x[x.length - 1]]).toEqual([0, n - 1]);
  });
  it('shows every point of a range that is looked at closely, and one on each side', () => {
    const { x } = decimate(xs, ys, 100.5, 110.5, 500);
    expect(x).toEqual([100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111]);
  });
  it('takes a few milliseconds for 100,000 points', () => {
    decimate(xs, ys, 0, n, 900);
    const begun = performance.now();
    for (let i = 0; i < 10; i++) decimate(xs, ys, 0, n, 900);
    expect((performance.now() - begun) / 10).toBeLessThan(30);
  });
});

it('puts lines on one axis', () => {
  const { x, ys } = align([
    { x: [1, 3], y: [10, 30] },
    { x: [2, 3], y: [5, 6] },
  ]);
  expect(x).toEqual([1, 2, 3]);
  expect(ys).toEqual([
    [10, null, 30],
    [null, 5, 6],
  ]);
});

it('smooths without being stopped by what is not a number', () => {
  const out = smooth([1, NaN, 1, 1], 3);
  expect([...out]).toEqual([1, 1, 1, 1]);
});
