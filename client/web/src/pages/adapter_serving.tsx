import { useState } from 'preact/hooks';
import { call, requestId } from '@/api/rpc';
import type { Adapter, Replica } from '@/api/types';
import { loadedWords, proofLook, wantedWords } from '@/model/serving';
import { useAction } from '@/ui/action';
import { say } from '@/ui/messages';
import { Act, Badge, Facts } from '@/ui/parts';
import { PointDialog } from './alias_dialog';

// Where an adapter is to be, where it is, the proof of each worker, and the names that point to it.
export function Serving({ adapter, onChanged }: { adapter: Adapter; onChanged: () => void }) {
  const { busy, run } = useAction();
  const [naming, setNaming] = useState(false);
  const pin = (pinned: boolean) =>
    run('pin', async () => {
      await call('AdapterService/PinAdapter', { id: adapter.id, pinned, request_id: requestId() });
      say(pinned ? 'Pinned: every worker holds it, and nobody unloads it.' : 'Unpinned: it stays where it is until it is unloaded.');
      onChanged();
    });
  return (
    <>
      <h2>On the workers</h2>
      <Facts
        items={[
          ['Wanted', wantedWords(adapter)],
          ['Loaded', loadedWords(adapter)],
          ['Names', adapter.aliases.length === 0 ? 'none' : adapter.aliases.map((alias) => <code key={alias}>{alias} </code>)],
        ]}
      />
      {adapter.replicas.length === 0 ? (
        <p class="muted">No worker holds it now. The first request for it, or Load, brings it into memory.</p>
      ) : (
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Workers, table">
          <table>
            <caption class="hidden">Workers that hold it, with their proofs</caption>
            <thead>
              <tr>
                <th scope="col">Worker</th>
                <th scope="col">State</th>
                <th scope="col">Proof</th>
              </tr>
            </thead>
            <tbody>
              {adapter.replicas.map((replica) => (
                <tr key={replica.worker}>
                  <th scope="row">
                    <code>{replica.worker}</code>
                  </th>
                  <td>
                    <ReplicaState replica={replica} />
                  </td>
                  <td>{replica.state === 'STATE_LOADED' ? <Proof replica={replica} /> : '–'}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
      <p class="row">
        <Act icon="check" busy={busy === 'pin'} onClick={() => void pin(!adapter.pinned)}>
          {adapter.pinned ? 'Unpin' : 'Pin'}
        </Act>
        <Act icon="plus" onClick={() => setNaming(true)}>
          Name it
        </Act>
      </p>
      {naming && <PointDialog adapters={[adapter]} onClose={() => setNaming(false)} onDone={onChanged} />}
    </>
  );
}

function Proof({ replica }: { replica: Replica }) {
  const look = proofLook(replica.proof);
  return (
    <>
      <Badge tone={look.tone} icon={look.icon}>
        {look.label}
      </Badge>
      <br />
      <span class="small muted">{look.words}</span>
    </>
  );
}

function ReplicaState({ replica }: { replica: Replica }) {
  if (replica.state === 'STATE_LOADED') {
    return (
      <Badge tone="good" icon="check">
        loaded
      </Badge>
    );
  }
  if (replica.state === 'STATE_FAILED') {
    return (
      <>
        <Badge tone="bad" icon="cross">
          {replica.no_room ? 'no room' : 'failed'}
        </Badge>{' '}
        {replica.error}
      </>
    );
  }
  return (
    <Badge tone="info" icon="clock">
      loading
    </Badge>
  );
}
