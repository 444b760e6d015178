import { asRpcError, type RpcError } from '@/api/error';
import { call } from '@/api/rpc';
import { Store } from '@/api/store';
import type { FineTuningJob } from '@/api/types';
import { merge } from '@/model/job_filter';
import { liveStates } from '@/model/states';

export interface JobsState {
  jobs: FineTuningJob[]; // newest first
  complete: boolean; // all there are have been read
  since: number; // last answer, ms; 0: none yet
  error?: RpcError | undefined;
}

const firstPage = 200;
const laterPage = 1000;
const renewed_ms = 4000;
const vanishedAtOnce = 30;

// All jobs, page by page, and then what changes: those that are alive, and new ones. One for the whole page, so that going
// back to the list shows it at once. `preset`: the server's filter, since items do not say their preset.
export class JobsStore {
  readonly state = new Store<JobsState>({ jobs: [], complete: false, since: 0 });
  private stop: AbortController | undefined;
  private users = 0;
  private preset = '';

  use(preset: string): () => void {
    this.users++;
    if (preset !== this.preset || !this.stop) {
      this.stop?.abort();
      if (preset !== this.preset) this.state.set({ jobs: [], complete: false, since: 0 });
      this.preset = preset;
      this.stop = new AbortController();
      void this.run(this.stop.signal);
    }
    return () => {
      if (--this.users > 0) return;
      this.stop?.abort();
      this.stop = undefined;
    };
  }

  // A job as a call has just answered it.
  put(job: FineTuningJob) {
    this.update([job]);
  }
  remove(id: string) {
    this.state.set({ ...this.state.get(), jobs: this.state.get().jobs.filter((job) => job.id !== id) });
  }

  private update(fresh: FineTuningJob[], more: Partial<JobsState> = {}) {
    const old = this.state.get();
    this.state.set({ ...old, jobs: merge(old.jobs, fresh), since: Date.now(), error: undefined, ...more });
  }

  private async run(signal: AbortSignal) {
    let loaded = this.state.get().complete;
    while (!signal.aborted) {
      try {
        if (!loaded) {
          await this.load(signal);
          loaded = true;
        } else if (!document.hidden) {
          await this.renew(signal);
        }
      } catch (cause) {
        if (signal.aborted) return;
        this.state.set({ ...this.state.get(), error: asRpcError(cause) });
      }
      await new Promise((resolve) => setTimeout(resolve, renewed_ms));
    }
  }

  private async load(signal: AbortSignal) {
    let token = '';
    do {
      const request = { page_size: token ? laterPage : firstPage, page_token: token, filter: { preset: this.preset } };
      const page = await call('FineTuningService/ListFineTuningJobs', request, signal);
      token = page.next_page_token;
      this.update(page.jobs, { complete: token === '' });
    } while (token);
  }

  private async renew(signal: AbortSignal) {
    const list = (filter: { states?: FineTuningJob['state'][] }, page_size: number) =>
      call('FineTuningService/ListFineTuningJobs', { page_size, filter: { preset: this.preset, ...filter } }, signal);
    const [alive, newest] = await Promise.all([list({ states: liveStates }, laterPage), list({}, 50)]);
    const fresh = [...alive.jobs, ...newest.jobs];
    const seen = new Set(fresh.map((job) => job.id));
    // What was alive and is not among them has ended, or was deleted.
    const ended = alive.next_page_token ? [] : this.state.get().jobs.filter((job) => liveStates.includes(job.state) && !seen.has(job.id));
    const gone: string[] = [];
    const now = await Promise.all(
      ended.slice(0, vanishedAtOnce).map(async (job) => {
        try {
          return [await call('FineTuningService/GetFineTuningJob', { id: job.id }, signal)];
        } catch (cause) {
          if (asRpcError(cause).status === 404) gone.push(job.id);
          else throw cause;
          return [];
        }
      }),
    );
    this.update([...fresh, ...now.flat()]);
    gone.forEach((id) => this.remove(id));
  }
}

export const jobsStore = new JobsStore();
