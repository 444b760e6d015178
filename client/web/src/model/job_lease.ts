import type { FineTuningJob } from '@/generated/dex/v1/finetuning';
import { clock, duration, moment } from './format';

type Leased = Pick<FineTuningJob, 'heartbeat_time' | 'lease_expire_time'>;

const laterOf = (a: string | undefined, b: string | undefined) => (!a || (b && Date.parse(b) > Date.parse(a)) ? b : a);

// Of two readings of one job what was heard last: a heartbeat is no change of the job, so its update_time doesn't tell.
export function latestLease(a: Leased, b: Leased): Leased {
  return {
    heartbeat_time: laterOf(a.heartbeat_time, b.heartbeat_time),
    lease_expire_time: laterOf(a.lease_expire_time, b.lease_expire_time),
  };
}

// When its worker was last heard of with the job, and until when it has it; empty: no worker has it.
export function leaseWords(job: Leased, now: number): string {
  if (!job.heartbeat_time) return '';
  const age = Math.max(0, (now - Date.parse(job.heartbeat_time)) / 1000); // clocks differ a little
  const heard = age < 1 ? 'heard of just now' : `heard of ${duration(age)} ago`;
  if (!job.lease_expire_time) return heard;
  const left = (Date.parse(job.lease_expire_time) - now) / 1000;
  return left > 0
    ? `${heard}, has it until ${clock(job.lease_expire_time)} (${duration(left)})`
    : `${heard}, lease over since ${clock(job.lease_expire_time)}: the job is given to another soon`;
}

// Of one that waits: when it should start. A time that is past says that what runs takes longer than foreseen.
export function startWords(job: Pick<FineTuningJob, 'state' | 'estimated_start_time'>, now: number): string {
  if (job.state !== 'JOB_STATE_QUEUED' || !job.estimated_start_time) return '';
  const left = (Date.parse(job.estimated_start_time) - now) / 1000;
  return left > 0 ? `starts about ${moment(job.estimated_start_time)}, in ${duration(left)}` : 'should start any moment';
}
