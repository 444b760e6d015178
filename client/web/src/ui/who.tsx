import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import { apiKey } from '@/api/session';
import { useStore } from '@/api/store';
import { whoWords } from '@/model/api_keys';

// Whose key this page sends, asked for again when it is another one.
export function useCaller() {
  return usePoll('whoami', (signal) => call('AdminService/WhoAmI', {}, signal));
}

// Above the pages: who is here. Opens the dialog in which that can be changed.
export function WhoIsHere({ onKey }: { onKey: () => void }) {
  const caller = useCaller();
  const sent = useStore(apiKey) !== '';
  const text = caller.data ? whoWords(caller.data) : caller.error?.needsKey ? (sent ? 'key not accepted' : 'no key given') : '';
  if (!text) return null;
  return (
    <button class="who" type="button" title="Change the API key" onClick={onKey}>
      {text}
    </button>
  );
}
