import { useMemo, useState } from 'preact/hooks';
import { call, requestId } from '@/api/rpc';
import type { ApiKey, Caller } from '@/api/types';
import { expiry, grantable, lifetimes } from '@/model/api_keys';
import { useAction } from '@/ui/action';
import { Dialog } from '@/ui/dialog';
import { Check, Select, TextInput } from '@/ui/form';
import { say } from '@/ui/messages';
import { Act } from '@/ui/parts';

// Makes a key with scopes that its maker has, of the tenant `of` at first (empty: the maker's).
export function NewKey({
  caller,
  tenant: of,
  onClose,
  onMade,
}: {
  caller: Caller;
  tenant: string;
  onClose: () => void;
  onMade: (key: ApiKey) => void;
}) {
  const [name, setName] = useState('');
  const [chosen, setChosen] = useState<string[]>([]);
  const [days, setDays] = useState('90');
  const [tenant, setTenant] = useState(of);
  const { busy, run } = useAction();
  // The same wishes are the same call, however often they are sent: its end too.
  const request = useMemo(() => {
    const expire_time = expiry(Number(days), Date.now());
    return { name: name.trim(), scopes: chosen, tenant: tenant.trim(), request_id: requestId(), ...(expire_time ? { expire_time } : {}) };
  }, [name, chosen, days, tenant]);
  const submit = () =>
    run('make', async () => {
      if (request.name === '') return say('Give the key a name, so that people know it again.', 'warn');
      if (chosen.length === 0) return say('Tick what the key may do.', 'warn');
      onMade(await call('AdminService/CreateApiKey', request));
    });
  return (
    <Dialog title="New API key" onClose={onClose}>
      <form class="stack" onSubmit={(event) => (event.preventDefault(), void submit())}>
        <TextInput label="Name" value={name} onValue={setName} placeholder="ci" hint="1 to 64 characters, for people." />
        <fieldset class="scopes">
          <legend>What it may do</legend>
          {grantable(caller).map(([scope, words]) => (
            <Check
              key={scope}
              label={<code>{scope}</code>}
              hint={words}
              checked={chosen.includes(scope)}
              onChecked={(on) => setChosen(on ? [...chosen, scope] : chosen.filter((one) => one !== scope))}
            />
          ))}
        </fieldset>
        <Select label="Ends after" value={days} onValue={setDays} options={lifetimes} />
        {caller.operator && (
          <TextInput label="Tenant" value={tenant} onValue={setTenant} placeholder={caller.tenant} hint="Empty: your own." />
        )}
        <div class="row end">
          <button type="button" class="button" onClick={onClose}>
            Close
          </button>
          <Act type="submit" kind="primary" busy={busy !== ''}>
            Make the key
          </Act>
        </div>
      </form>
    </Dialog>
  );
}
