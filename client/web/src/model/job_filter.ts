import type { FineTuningJob } from '@/api/types';
import { groupOf, type Group } from './states';

export interface JobFilter {
  groups: Group[]; // none: all
  model: string; // '': all
  text: string;
}

export const noFilter: JobFilter = { groups: [], model: '', text: '' };

export function titleOf(job: Pick<FineTuningJob, 'display_name' | 'suffix' | 'id'>): string {
  return job.display_name || job.suffix || job.id;
}

// Every word must be in what identifies the job: id, names, model, adapter, metadata, error.
export function matches(job: FineTuningJob, filter: JobFilter): boolean {
  if (filter.groups.length > 0 && !filter.groups.includes(groupOf(job.state))) return false;
  if (filter.model && job.base_model !== filter.model) return false;
  const words = filter.text.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const metadata = Object.entries(job.metadata).map(([key, value]) => `${key}=${value}`);
  const text = [
    job.id,
    job.display_name,
    job.suffix,
    job.model,
    job.base_model,
    job.fine_tuned_model,
    job.training_file,
    job.error?.code ?? '',
    ...metadata,
  ]
    .join(' ')
    .toLowerCase();
  return words.every((word) => text.includes(word));
}

export function countByGroup(jobs: Iterable<FineTuningJob>): Record<Group, number> {
  const counts: Record<Group, number> = { running: 0, waiting: 0, paused: 0, succeeded: 0, failed: 0, ended: 0 };
  for (const job of jobs) counts[groupOf(job.state)]++;
  return counts;
}

// New records over old ones, newest first. An id holds its time (ULID), so its order is the order of creation.
export function merge(old: FineTuningJob[], fresh: FineTuningJob[]): FineTuningJob[] {
  const byId = new Map(old.map((job) => [job.id, job]));
  for (const job of fresh) byId.set(job.id, job);
  return [...byId.values()].sort((a, b) => (a.id < b.id ? 1 : a.id > b.id ? -1 : 0));
}
