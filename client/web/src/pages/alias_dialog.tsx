import { useMemo, useState } from 'preact/hooks';
import { call, requestId } from '@/api/rpc';
import type { Adapter, AdapterAlias } from '@/api/types';
import { aliasFault } from '@/model/serving';
import { useAction } from '@/ui/action';
import { Dialog } from '@/ui/dialog';
import { Check, Select, TextInput } from '@/ui/form';
import { say } from '@/ui/messages';
import { Act, Note } from '@/ui/parts';
import { useCaller } from '@/ui/who';
import { shortName } from './adapters';

// Points an alias, `alias` or one that is named here, to one of `adapters`.
export function PointDialog({
  alias,
  adapters,
  onClose,
  onDone,
}: {
  alias?: AdapterAlias | undefined;
  adapters: Adapter[];
  onClose: () => void;
  onDone: () => void;
}) {
  const caller = useCaller();
  const [name, setName] = useState(alias?.alias ?? '');
  const [chosen, setChosen] = useState((adapters.find((adapter) => adapter.id !== alias?.adapter) ?? adapters[0])?.id ?? '');
  const [override, setOverride] = useState(false);
  const { busy, run } = useAction();
  const target = adapters.find((adapter) => adapter.id === chosen);
  const blocked = target?.promotable === false;
  const admin = caller.data?.scopes.includes('admin') ?? false;
  const request = useMemo(() => {
    const known = alias ? { etag: alias.etag } : { create_only: true }; // nobody else's move is undone unseen
    return { alias: name, adapter: chosen, override_gates: blocked && override, request_id: requestId(), ...known };
  }, [name, chosen, blocked, override, alias]);
  const fault = name === '' ? '' : aliasFault(name);
  const submit = () =>
    run('point', async () => {
      if (aliasFault(name)) return say('Give the alias a name that it may have.', 'warn');
      if (!chosen) return say('Choose an adapter.', 'warn');
      await call('AdapterService/SetAdapterAlias', request);
      say(`“${name}” points to ${shortName(chosen)}, on every worker.`);
      onDone();
      onClose();
    });
  return (
    <Dialog title={alias ? `Point “${alias.alias}”` : 'New alias'} onClose={onClose}>
      <form class="stack" onSubmit={(event) => (event.preventDefault(), void submit())}>
        {!alias && <TextInput label="Alias" value={name} onValue={setName} placeholder="live" fault={fault || undefined} />}
        {adapters.length === 1 ? (
          <p>
            To <strong>{shortName(adapters[0]!.id)}</strong>.
          </p>
        ) : (
          <Select
            label="Points to"
            value={chosen}
            onValue={setChosen}
            options={adapters.map((adapter): [string, string] => [
              adapter.id,
              `${shortName(adapter.id)} on ${adapter.base_model}${adapter.id === alias?.adapter ? ' (as now)' : ''}`,
            ])}
          />
        )}
        {blocked &&
          (admin ? (
            <Check
              label="Although it is not promotable"
              hint="A gate has not passed, or its branch is inert. The alias’s history keeps that it was said."
              checked={override}
              onChecked={setOverride}
            />
          ) : (
            <Note tone="warn">It is not promotable: only a key with the scope admin can point an alias to it.</Note>
          ))}
        <p class="muted small">Every worker loads and proves the adapter first; then all requests move at once.</p>
        <div class="row end">
          <button type="button" class="button" onClick={onClose}>
            Close
          </button>
          <Act type="submit" kind="primary" busy={busy !== ''}>
            {busy ? 'Workers load it …' : 'Point it there'}
          </Act>
        </div>
      </form>
    </Dialog>
  );
}
