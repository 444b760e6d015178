import { useEffect, useMemo, useState } from 'preact/hooks';
import { asRpcError, type RpcError } from '@/api/error';
import { call } from '@/api/rpc';
import type { Estimate } from '@/api/types';
import { specOf, type Recipe } from '@/model/recipe';

const settle_ms = 350;

// Asks the server what the job would cost, a moment after the last change.
export function useEstimate(recipe: Recipe, key: string, whole: boolean) {
  const [state, setState] = useState<{ estimate?: Estimate | undefined; error?: RpcError | undefined; asking: boolean }>({ asking: false });
  const spec = useMemo(() => specOf(recipe), [key]);
  useEffect(() => {
    if (!whole) {
      setState({ asking: false });
      return;
    }
    const stop = new AbortController();
    setState((old) => ({ ...old, asking: true }));
    const timer = setTimeout(() => {
      call('FineTuningService/EstimateFineTuningJob', { spec }, stop.signal)
        .then((estimate) => setState({ estimate, asking: false }))
        .catch((cause) => !stop.signal.aborted && setState({ error: asRpcError(cause), asking: false }));
    }, settle_ms);
    return () => (clearTimeout(timer), stop.abort());
  }, [key, whole]);
  return state;
}
