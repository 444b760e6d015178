import type { FineTuningJob, JobPhase, JobState, WaitingReason } from '@/api/types';

export type Tone = 'good' | 'warn' | 'bad' | 'info' | 'idle' | 'accent';
export type Mark = 'check' | 'cross' | 'pause' | 'clock' | 'play' | 'stop' | 'warn' | 'dot' | 'spin';

export interface Look {
  label: string;
  tone: Tone;
  mark: Mark; // so that the colour is never the only sign
}

const looks: Record<JobState, Look> = {
  JOB_STATE_UNSPECIFIED: { label: 'unknown', tone: 'idle', mark: 'dot' },
  JOB_STATE_QUEUED: { label: 'waiting', tone: 'info', mark: 'clock' },
  JOB_STATE_VALIDATING_FILES: { label: 'checking', tone: 'accent', mark: 'spin' },
  JOB_STATE_RUNNING: { label: 'running', tone: 'accent', mark: 'play' },
  JOB_STATE_PAUSING: { label: 'pausing', tone: 'warn', mark: 'pause' },
  JOB_STATE_CANCELLING: { label: 'cancelling', tone: 'warn', mark: 'stop' },
  JOB_STATE_PAUSED: { label: 'paused', tone: 'warn', mark: 'pause' },
  JOB_STATE_SUCCEEDED: { label: 'succeeded', tone: 'good', mark: 'check' },
  JOB_STATE_FAILED: { label: 'failed', tone: 'bad', mark: 'cross' },
  JOB_STATE_CANCELLED: { label: 'cancelled', tone: 'idle', mark: 'stop' },
  JOB_STATE_EXPIRED: { label: 'expired', tone: 'idle', mark: 'clock' },
};

// A newer server may know states that this page does not.
export function lookOf(state: string): Look {
  return looks[state as JobState] ?? { label: state.replace(/^JOB_STATE_/, '').toLowerCase(), tone: 'idle', mark: 'dot' };
}

export type Group = 'running' | 'waiting' | 'paused' | 'succeeded' | 'failed' | 'ended';

export const groups: { group: Group; label: string; states: JobState[] }[] = [
  {
    group: 'running',
    label: 'Running',
    states: ['JOB_STATE_VALIDATING_FILES', 'JOB_STATE_RUNNING', 'JOB_STATE_PAUSING', 'JOB_STATE_CANCELLING'],
  },
  { group: 'waiting', label: 'Waiting', states: ['JOB_STATE_QUEUED'] },
  { group: 'paused', label: 'Paused', states: ['JOB_STATE_PAUSED'] },
  { group: 'succeeded', label: 'Succeeded', states: ['JOB_STATE_SUCCEEDED'] },
  { group: 'failed', label: 'Failed', states: ['JOB_STATE_FAILED'] },
  { group: 'ended', label: 'Cancelled', states: ['JOB_STATE_CANCELLED', 'JOB_STATE_EXPIRED'] },
];

const groupOfState = new Map<string, Group>(groups.flatMap(({ group, states }) => states.map((state) => [state, group] as const)));
export const groupOf = (state: string): Group => groupOfState.get(state) ?? 'ended';

export const liveStates: JobState[] = [...groups[0]!.states, ...groups[1]!.states];
export const isTerminal = (state: string) => ['succeeded', 'failed', 'ended'].includes(groupOf(state));
export const canCancel = (state: string) => !isTerminal(state) && state !== 'JOB_STATE_CANCELLING';
export const canPause = (state: string) => ['JOB_STATE_QUEUED', 'JOB_STATE_VALIDATING_FILES', 'JOB_STATE_RUNNING'].includes(state);
export const canResume = (state: string) => state === 'JOB_STATE_PAUSED' || state === 'JOB_STATE_PAUSING';
export const canCheckpoint = (state: string) => state === 'JOB_STATE_RUNNING';

const phases: Record<JobPhase, string> = {
  JOB_PHASE_UNSPECIFIED: '',
  JOB_PHASE_LOADING_MODEL: 'loading the model',
  JOB_PHASE_LOADING_DATASET: 'loading the data',
  JOB_PHASE_VALIDATING: 'checking every row',
  JOB_PHASE_SELECTING_HEADS: 'choosing attention heads',
  JOB_PHASE_PROBING: 'trying one update',
  JOB_PHASE_TRAINING: 'training',
  JOB_PHASE_EVALUATING: 'measuring held-out loss',
  JOB_PHASE_SAVING_CHECKPOINT: 'saving a checkpoint',
  JOB_PHASE_EXPORTING: 'writing the adapter',
  JOB_PHASE_VERIFYING: 'verifying the adapter',
  JOB_PHASE_FINALIZING: 'finishing',
};
export const phaseText = (phase: string) => phases[phase as JobPhase] ?? '';

const reasons: Record<WaitingReason, string> = {
  WAITING_REASON_UNSPECIFIED: '',
  WAITING_REASON_CAPACITY: 'all workers are busy',
  WAITING_REASON_QUOTA: 'you have as many running jobs as you may',
  WAITING_REASON_RETRY_BACKOFF: 'a pause before it is tried again',
  WAITING_REASON_MODEL: 'no worker has its base model',
};

// Where a job stands, in a few words: phase, or place in the queue and why, or why it is paused.
export function standing(job: Pick<FineTuningJob, 'state' | 'phase' | 'waiting_reason' | 'queue_position' | 'pause_reason'>): string {
  if (job.state === 'JOB_STATE_QUEUED') {
    const place = job.queue_position ? (job.queue_position === 1 ? 'next in line' : `number ${job.queue_position} in line`) : '';
    return [place, reasons[job.waiting_reason] ?? ''].filter(Boolean).join(': ');
  }
  if (job.state === 'JOB_STATE_PAUSED') {
    if (job.pause_reason === 'PAUSE_REASON_AWAITING_START') return 'checked by a worker, waits for you to start it';
    if (job.pause_reason === 'PAUSE_REASON_DISK_FULL') return 'the workers’ disks are full';
    return 'paused by you';
  }
  return phaseText(job.phase);
}

export function whoActs(category: string): string {
  if (category === 'USER') return 'You can repair this: change the data or the settings.';
  if (category === 'CAPACITY') return 'The machine lacks room: ask for less, or try later.';
  return 'The platform failed here: try again, or tell who runs it.';
}
