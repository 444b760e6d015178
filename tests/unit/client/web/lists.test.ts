import type { FineTuningJob } from '@/api/types';
import { countByGroup, matches, merge, noFilter, titleOf } from '@/model/job_filter';
import { canCancel, groupOf, isTerminal, lookOf, standing } from '@/model/states';
import { scrollFor, windowOf } from '@/model/virtual';

describe('windowOf', () => {
  it('draws what is in view and a few rows more', () => {
    expect(windowOf(6200, 620, 62, 10_000, 5)).toEqual({
      first: 95,
      last: 115,
      before: 5890,
      total: 620_000,
    });
  });
  it('begins with the first row while the list is below the top, and ends with the last', () => {
    expect(windowOf(-300, 800, 62, 10_000, 5)).toMatchObject({
      first: 0,
      last: 14,
    });
    expect(windowOf(619_900, 800, 62, 10_000, 5)).toMatchObject({
      last: 10_000,
    });
    expect(windowOf(0, 800, 62, 0)).toEqual({
      first: 0,
      last: 0,
      before: 0,
      total: 0,
    });
    expect(windowOf(1e9, 800, 62, 10)).toMatchObject({ first: 10, last: 10 });
  });
  it('never draws many rows, however long the list', () => {
    for (let scrolled = 0; scrolled < 620_000; scrolled += 9973) {
      const { first, last } = windowOf(scrolled, 900, 62, 10_000);
      expect(last - first).toBeLessThan(40);
    }
  });
  it('scrolls no further than a row needs', () => {
    expect(scrollFor(0, 500, 600, 50, 80)).toBe(-80);
    expect(scrollFor(20, 500, 600, 50)).toBe(500);
    expect(scrollFor(30, 500, 600, 50)).toBe(950);
  });
});

const job = (id: string, over: Partial<FineTuningJob> = {}) =>
  ({
    id,
    state: 'JOB_STATE_QUEUED',
    model: 'm',
    base_model: 'm',
    suffix: '',
    display_name: '',
    fine_tuned_model: '',
    training_file: 'file-1',
    metadata: {},
    ...over,
  }) as FineTuningJob;

describe('the list of jobs', () => {
  it('finds a job by every word, wherever it is said', () => {
    const one = job('ftjob-1', {
      display_name: 'Support answers',
      metadata: { team: 'blue' },
    });
    expect(matches(one, { ...noFilter, text: 'SUPPORT team=blue' })).toBe(true);
    expect(matches(one, { ...noFilter, text: 'support red' })).toBe(false);
    expect(matches(one, { ...noFilter, groups: ['running'] })).toBe(false);
    expect(matches(one, { ...noFilter, groups: ['running', 'waiting'] })).toBe(true);
    expect(matches(one, { ...noFilter, model: 'other' })).toBe(false);
  });
  it('puts new records over old ones, newest first', () => {
    const merged = merge([job('b'), job('a')], [job('c'), job('a', { state: 'JOB_STATE_SUCCEEDED' })]);
    expect(merged.map((one) => one.id)).toEqual(['c', 'b', 'a']);
    expect(merged[2]!.state).toBe('JOB_STATE_SUCCEEDED');
  });
  it('counts by group', () => {
    expect(countByGroup([job('a'), job('b', { state: 'JOB_STATE_EXPIRED' })])).toMatchObject({ waiting: 1, ended: 1, running: 0 });
  });
  it('titles a job by what a person called it', () => {
    expect([titleOf(job('i', { suffix: 's', display_name: 'N' })), titleOf(job('i', { suffix: 's' })), titleOf(job('i'))]).toEqual([
      'N',
      's',
      'i',
    ]);
  });
});

describe('states', () => {
  it('survive a server that knows more', () => {
    expect(lookOf('JOB_STATE_DREAMING').label).toBe('dreaming');
    expect(groupOf('JOB_STATE_DREAMING')).toBe('ended');
  });
  it('say what can be done', () => {
    expect(canCancel('JOB_STATE_PAUSED')).toBe(true);
    expect(canCancel('JOB_STATE_CANCELLING')).toBe(false);
    expect(isTerminal('JOB_STATE_EXPIRED')).toBe(true);
  });
  it('say where a waiting job stands, and why', () => {
    const waiting = {
      state: 'JOB_STATE_QUEUED',
      phase: 'JOB_PHASE_UNSPECIFIED',
      waiting_reason: 'WAITING_REASON_MODEL',
      queue_position: 3,
      pause_reason: 'PAUSE_REASON_UNSPECIFIED',
    } as const;
    expect(standing(waiting)).toBe('number 3 in line: no worker has its base model');
    expect(
      standing({
        ...waiting,
        queue_position: 1,
        waiting_reason: 'WAITING_REASON_UNSPECIFIED',
      }),
    ).toBe('next in line');
    expect(
      standing({
        ...waiting,
        state: 'JOB_STATE_RUNNING',
        phase: 'JOB_PHASE_SELECTING_HEADS',
      }),
    ).toBe('choosing attention heads');
  });
});
