import { useCallback, useEffect, useRef, useState } from 'preact/hooks';
import { asRpcError, type RpcError } from './error';
import { apiKey } from './session';
import { useStore } from './store';

export interface Polled<T> {
  data: T | undefined;
  error: RpcError | undefined; // of the last try; `data` is then as of `since`
  since: number; // when data came, ms since 1970; 0: never
  loading: boolean;
  refresh: () => void;
}

// Asks at once, then every `every_ms` (0: only when told to) while the page can be seen; again when `key` changes.
export function usePoll<T>(key: string, ask: (signal: AbortSignal) => Promise<T>, every_ms = 0): Polled<T> {
  const [state, setState] = useState<{ key: string; data?: T | undefined; error?: RpcError | undefined; since: number; loading: boolean }>({
    key,
    since: 0,
    loading: true,
  });
  const [round, setRound] = useState(0);
  const credential = useStore(apiKey);
  const latest = useRef(ask);
  latest.current = ask;
  useEffect(() => {
    const stop = new AbortController();
    let timer = 0;
    const again = () => {
      if (every_ms > 0 && !stop.signal.aborted) timer = window.setTimeout(once, every_ms);
    };
    const once = async () => {
      if (document.hidden && round > 0) return again();
      try {
        const data = await latest.current(stop.signal);
        if (stop.signal.aborted) return;
        setState({ key, data, since: Date.now(), loading: false });
      } catch (cause) {
        if (stop.signal.aborted) return;
        setState((old) => ({ ...(old.key === key ? old : { key, since: 0 }), error: asRpcError(cause), loading: false }));
      }
      again();
    };
    setState((old) => (old.key === key ? { ...old, loading: true } : { key, since: 0, loading: true }));
    void once();
    return () => {
      stop.abort();
      clearTimeout(timer);
    };
  }, [key, every_ms, round, credential]);
  const refresh = useCallback(() => setRound((n) => n + 1), []);
  const current = state.key === key;
  return {
    data: current ? state.data : undefined,
    error: current ? state.error : undefined,
    since: current ? state.since : 0,
    loading: current ? state.loading : true,
    refresh,
  };
}
