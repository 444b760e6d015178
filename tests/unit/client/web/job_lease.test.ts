import { latestLease, leaseWords, startWords } from '@/model/job_lease';

const now = Date.parse('2026-11-30T12:00:00Z');
const at = (seconds: number) => new Date(now + seconds * 1000).toISOString();

describe('the lease of a job', () => {
  it('says when its worker was heard of, and until when it has it', () => {
    expect(leaseWords({}, now)).toBe('');
    expect(leaseWords({ heartbeat_time: at(-4), lease_expire_time: at(26) }, now)).toMatch(/^heard of 4 s ago, has it until .* \(26 s\)$/);
    expect(leaseWords({ heartbeat_time: at(-90), lease_expire_time: at(-60) }, now)).toMatch(/^heard of 1 min 30 s ago, lease over since/);
    expect(leaseWords({ heartbeat_time: at(2), lease_expire_time: at(30) }, now)).toMatch(/^heard of just now/); // a clock is ahead
  });
  it('is the later of two readings, whichever record is newer, and fractions of a second count', () => {
    const a = { heartbeat_time: '2026-11-30T12:00:05.5Z', lease_expire_time: at(35) };
    const b = { heartbeat_time: '2026-11-30T12:00:05Z', lease_expire_time: at(30) };
    expect(latestLease(a, b)).toEqual(a);
    expect(latestLease(b, a)).toEqual(a);
    expect(latestLease({}, b)).toEqual(b);
    expect(latestLease(b, {})).toEqual(b);
  });
});

describe('the start of a job', () => {
  it('is foreseen only while it waits', () => {
    const job = { state: 'JOB_STATE_QUEUED', estimated_start_time: at(2700) } as const;
    expect(startWords(job, now)).toMatch(/^starts about 30 Nov 2026, .*, in 45 min$/);
    expect(startWords(job, now + 3_000_000)).toBe('should start any moment');
    expect(startWords({ ...job, state: 'JOB_STATE_RUNNING' }, now)).toBe('');
    expect(startWords({ state: 'JOB_STATE_QUEUED' }, now)).toBe('');
  });
});
