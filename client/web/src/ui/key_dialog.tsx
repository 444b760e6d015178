import { useState } from 'preact/hooks';
import { apiKey, keyIsStored, takeKey } from '@/api/session';
import { Dialog } from './dialog';
import { Check, TextInput } from './form';
import { Note } from './parts';

export function KeyDialog({ wanted, onClose }: { wanted: boolean; onClose: () => void }) {
  const [key, setKey] = useState(apiKey.get());
  const [remember, setRemember] = useState(keyIsStored());
  return (
    <Dialog title="API key" onClose={onClose}>
      <form class="stack" onSubmit={(event) => (event.preventDefault(), takeKey(key.trim(), remember), onClose())}>
        {wanted && (
          <Note tone="warn">
            {apiKey.get() ? 'The gateway does not accept this key.' : 'This gateway asks for a key.'} The first admin key lies in{' '}
            <code>admin.key</code> of dexd’s data folder.
          </Note>
        )}
        <p class="muted">
          On this machine, dexd needs none unless it was started with <code>--auth on</code>.
        </p>
        <TextInput label="Key" type="password" value={key} onValue={setKey} placeholder="dex_…" />
        <Check
          label="Keep it in this browser"
          hint="Otherwise it is forgotten when the page is closed."
          checked={remember}
          onChecked={setRemember}
        />
        <div class="row end">
          <button class="button" type="button" onClick={onClose}>
            Close
          </button>
          <button class="button primary" type="submit">
            Use this key
          </button>
        </div>
      </form>
    </Dialog>
  );
}
