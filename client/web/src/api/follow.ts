import { asRpcError, RpcError } from './error';
import type { Streams } from './methods';
import { isTerminal } from '@/model/states';
import { stream } from './rpc';
import type { Loose } from './types';

// How a watch stands: `live` while its stream is open. `since`: when anything was last heard.
export interface Watch {
  live: boolean;
  ended: boolean; // nothing more will come
  since: number;
  error?: RpcError | undefined;
}

interface Sequenced {
  event?: { sequence: string } | undefined;
  snapshot?: { state: string } | undefined;
}

type Watched = 'FineTuningService/WatchFineTuningJob' | 'EvaluationService/WatchEvaluation';

const silence = 45_000; // three heartbeats
const wait = (ms: number, signal: AbortSignal) =>
  new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener('abort', () => (clearTimeout(timer), resolve()), { once: true });
  });

// Watches a job or an evaluation until it has ended: after a break it goes on after the last event that has been seen, so
// that each comes once. Ends for good on what trying again can't change.
export async function follow<K extends Watched>(
  name: K,
  id: string,
  onMessages: (messages: Streams[K][1][]) => void,
  onWatch: (watch: Watch) => void,
  signal: AbortSignal,
  delays = [500, 1000, 2000, 5000, 10_000],
): Promise<void> {
  let after = '0';
  let failures = 0;
  let since = Date.now();
  let over = false; // the last snapshot says that it has ended
  while (!signal.aborted) {
    const attempt = new AbortController();
    const stop = () => attempt.abort();
    signal.addEventListener('abort', stop);
    let heard = Date.now();
    const guard = setInterval(() => Date.now() - heard > silence && attempt.abort(), 5000);
    try {
      const how = await stream(
        name,
        { id, after_sequence: after } as Loose<Streams[K][0]>,
        (messages) => {
          for (const message of messages as Sequenced[]) {
            const sequence = message.event?.sequence;
            if (sequence && BigInt(sequence) > BigInt(after)) after = sequence;
            if (message.snapshot) over = isTerminal(message.snapshot.state);
          }
          failures = 0;
          since = Date.now();
          onMessages(messages);
          onWatch({ live: true, ended: false, since });
        },
        attempt.signal,
        () => (heard = Date.now()),
      );
      const ended = how === 'end' || over;
      onWatch({ live: false, ended, since: Date.now() });
      if (ended) return;
    } catch (cause) {
      if (signal.aborted) return;
      // What this page's own code throws, trying again won't mend; it would only lose messages.
      if (!(cause instanceof RpcError) && !attempt.signal.aborted) console.error(cause);
      const error =
        cause instanceof RpcError || attempt.signal.aborted
          ? asRpcError(cause)
          : new RpcError(`This page could not read what the gateway sent: ${String(cause)}`, 0, 'page_fault', 'USER', false);
      const hopeless = error.category === 'USER' && !error.retryable;
      onWatch({ live: false, ended: hopeless, since, error });
      if (hopeless) return;
    } finally {
      clearInterval(guard);
      signal.removeEventListener('abort', stop);
      attempt.abort();
    }
    await wait(delays[Math.min(failures++, delays.length - 1)]!, signal);
  }
}
