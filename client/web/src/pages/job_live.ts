import { useEffect, useRef, useState } from 'preact/hooks';
import { follow, type Watch } from '@/api/follow';
import { apiKey } from '@/api/session';
import { useStore } from '@/api/store';
import type { FineTuningEvent, FineTuningJob, WatchFineTuningJobResponse } from '@/api/types';
import { JobSeries } from '@/model/series';
import { jobsStore } from './jobs_store';

export interface JobLive {
  job: FineTuningJob | undefined; // as last told; progress from the events
  events: FineTuningEvent[]; // without metrics, oldest first
  series: JobSeries;
  metrics: number; // how many metrics events there were
  version: number;
  watch: Watch;
}

// A long history comes in at full speed; the page draws at most so often.
const drawn_ms = 250;

// Watches a job from its first event to its last. `round` changes to watch anew.
export function useJobLive(id: string, round: number): JobLive {
  const live = useRef<JobLive>();
  const credential = useStore(apiKey);
  const [, draw] = useState(0);
  if (!live.current) live.current = fresh();
  useEffect(() => {
    const stop = new AbortController();
    const state = (live.current = fresh());
    let timer = 0;
    let drawnAt = 0;
    const show = () => {
      timer = 0;
      drawnAt = Date.now();
      state.version++;
      draw((n) => n + 1);
    };
    const soon = () => {
      if (!timer) timer = window.setTimeout(show, Math.max(0, drawnAt + drawn_ms - Date.now()));
    };
    const take = (messages: WatchFineTuningJobResponse[]) => {
      for (const message of messages) {
        if (message.snapshot) {
          state.job = message.snapshot;
          jobsStore.put(message.snapshot);
        }
        if (!message.event) continue;
        state.series.add(message.event);
        if (message.event.metrics) state.metrics++;
        else state.events.push(message.event);
      }
      soon();
    };
    const told = (watch: Watch) => {
      state.watch = watch;
      soon();
    };
    void follow('FineTuningService/WatchFineTuningJob', id, take, told, stop.signal);
    return () => (stop.abort(), clearTimeout(timer));
  }, [id, round, credential]);
  return live.current;
}

function fresh(): JobLive {
  return { job: undefined, events: [], series: new JobSeries(), metrics: 0, version: 0, watch: { live: false, ended: false, since: 0 } };
}
