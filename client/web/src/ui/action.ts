import { useRef, useState } from 'preact/hooks';
import { sayError } from './messages';

// Runs one thing at a time; what goes wrong is said. `busy` names what runs.
export function useAction() {
  const [busy, setBusy] = useState('');
  const running = useRef(false);
  const run = async (name: string, act: () => Promise<void>) => {
    if (running.current) return;
    running.current = true;
    setBusy(name);
    try {
      await act();
    } catch (cause) {
      sayError(cause);
    } finally {
      running.current = false;
      setBusy('');
    }
  };
  return { busy, run };
}
