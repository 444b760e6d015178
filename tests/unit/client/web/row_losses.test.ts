import { meanOf, rowLosses } from '@/model/row_losses';

const group = (by: string, name: string, loss: number) => ({ by, name, loss, rows: '3', tokens: '40' });
const measured = (step: number, ...groups: ReturnType<typeof group>[]) => ({ group_loss: { step, groups } });
const worst = (step: number, line: string) => ({
  worst_rows: { step, file: 'training_file', rows: [{ line, loss: 7, tokens: '3', tag: '', language: '' }] },
});

describe('the rows behind a loss', () => {
  it('are the last word beside the base’s, by kind, the highest loss first', () => {
    const found = rowLosses([
      measured(0, group('tag', 'a', 2), group('tag', 'b', 3), group('length', '64', 2.5)),
      worst(0, '9'),
      measured(40, group('tag', 'a', 1.9), group('tag', 'b', 2.9)),
      measured(80, group('tag', 'a', 1.5), group('tag', 'b', 2.5), group('length', '64', 2), group('length', '128', 2.25)),
      worst(80, '7'),
    ]);
    expect(found.step).toBe(80);
    expect(found.groups.map(({ by, name }) => `${by} ${name}`)).toEqual(['tag b', 'tag a', 'length 128', 'length 64']);
    expect(found.groups[0]).toMatchObject({ base: 3, loss: 2.5, change: -0.5, rows: 3, tokens: 40 });
    expect(found.groups[2]!.change).toBeNaN(); // the base was not measured on it
    expect(found.worst).toMatchObject({ step: 80, rows: [{ line: '7' }] });
  });
  it('are none before the first measurement', () => {
    expect(rowLosses([{}])).toEqual({ step: 0, groups: [], worst: undefined });
  });
  it('leave layers without a selected head out of a mean', () => {
    expect(meanOf([0.01, 'NaN', 0.02])).toBeCloseTo(0.015);
    expect(meanOf(['NaN'])).toBeNaN();
    expect(meanOf([])).toBeNaN();
  });
});
