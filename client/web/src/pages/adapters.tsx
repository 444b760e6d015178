import { useRef, useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call, requestId, upload } from '@/api/rpc';
import type { Adapter } from '@/api/types';
import { bytes, percent, plural } from '@/model/format';
import { useAction } from '@/ui/action';
import { Dialog } from '@/ui/dialog';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Select, TextInput } from '@/ui/form';
import { Act, Ago, Badge, Bar, Empty, ErrorNote, Head, Loading, Note, Stale } from '@/ui/parts';
import { go, to } from '@/ui/route';
import { Aliases } from './aliases';
import { AdapterMarks } from './job_verdict';
import { MorePages, usePages } from './paging';

// The part of an id that a person chose, else its end: ft:<base>:<tenant>:<suffix>:<u>.
export function shortName(id: string): string {
  const [, , , suffix, ulid] = id.split(':');
  return suffix || `…${(ulid ?? id).slice(-8)}`;
}

export function LoadBadge({ adapter }: { adapter: Adapter }) {
  const loaded = adapter.replicas.filter((replica) => replica.state === 'STATE_LOADED').length;
  const failed = adapter.replicas.some((replica) => replica.state === 'STATE_FAILED');
  if (failed)
    return (
      <Badge tone="bad" icon="cross">
        could not be loaded
      </Badge>
    );
  // A first request loads it too, without anyone having asked that it stays.
  if (loaded > 0 && loaded === adapter.replicas.length)
    return (
      <Badge tone="good" icon="check">
        in memory on {plural(loaded, 'worker')}
      </Badge>
    );
  if (adapter.desired === 'DESIRED_DEVICE')
    return (
      <Badge tone="info" icon="clock">
        loading
      </Badge>
    );
  return <Badge icon="dot">not in memory</Badge>;
}

export function AdaptersPage() {
  const [base, setBase] = useState('');
  const [importing, setImporting] = useState(false);
  const models = usePoll('models', (signal) => call('ModelService/ListModels', {}, signal));
  const first = usePoll(
    `adapters ${base}`,
    (signal) => call('AdapterService/ListAdapters', { page_size: 50, base_model: base }, signal),
    8000,
  );
  const pages = usePages(
    first.data && { items: first.data.adapters, next: first.data.next_page_token },
    async (token) =>
      call('AdapterService/ListAdapters', { page_size: 200, page_token: token, base_model: base }).then((r) => ({
        items: r.adapters,
        next: r.next_page_token,
      })),
    (adapter) => adapter.id,
  );
  return (
    <div class="stack">
      <Head
        title="Adapters"
        actions={
          <button type="button" class="button" onClick={() => setImporting(true)}>
            <Icon name="upload" />
            Import
          </button>
        }
      >
        <p>
          What jobs leave behind: small files that turn a base model into yours. Loaded, they answer beside each other; folded, they become
          one plain model.
        </p>
      </Head>
      <div class="row apart">
        <div style={{ width: '260px', maxWidth: '100%' }}>
          <Select
            label="Base model"
            value={base}
            onValue={setBase}
            options={[['', 'all'], ...(models.data?.models ?? []).map((model): [string, string] => [model.name, model.name])]}
          />
        </div>
        <Stale error={first.error} since={first.since} />
      </div>
      {!first.data ? (
        first.error ? (
          <ErrorNote error={first.error} retry={first.refresh} />
        ) : (
          <Loading what="the adapters" />
        )
      ) : pages.items.length === 0 ? (
        <div class="card">
          <Empty icon="adapters" title="No adapters yet">
            <p>A finished job leaves one here. You can also import one of ours, or a LoRA that PEFT has saved.</p>
            <a class="button primary" href={to(['jobs', 'new'])}>
              <Icon name="plus" />
              New job
            </a>
          </Empty>
        </div>
      ) : (
        <>
          <Aliases adapters={pages.items} />
          <div class="grid">
            {pages.items.map((adapter) => (
              <AdapterCard key={adapter.id} adapter={adapter} />
            ))}
          </div>
          <MorePages pages={pages} />
        </>
      )}
      {importing && <ImportDialog models={(models.data?.models ?? []).map((model) => model.name)} onClose={() => setImporting(false)} />}
    </div>
  );
}

function AdapterCard({ adapter }: { adapter: Adapter }) {
  return (
    <article class="card stack tight">
      <div class="row apart">
        <h2 class="wrap-any">
          <a href={to(['adapters', adapter.id])}>{shortName(adapter.id)}</a>
        </h2>
        <span class="tag">
          {adapter.method}
          {adapter.origin === 'ORIGIN_IMPORTED' && ', imported'}
        </span>
      </div>
      <p class="small muted wrap-any">
        on {adapter.base_model} · {bytes(adapter.bytes)} · <Ago time={adapter.create_time} />
      </p>
      <p class="row">
        <LoadBadge adapter={adapter} />
        {adapter.pinned && (
          <Badge tone="info" icon="check">
            pinned
          </Badge>
        )}
        {adapter.aliases.map((alias) => (
          <span class="tag" key={alias}>
            {alias}
          </span>
        ))}
        <AdapterMarks promotable={adapter.promotable} verdict={adapter.branch_effect?.verdict} />
      </p>
      {adapter.metrics?.valid_loss !== undefined && adapter.metrics.base_valid_loss !== undefined && (
        <p class="num">
          Perplexity {percent(Math.expm1(adapter.metrics.valid_loss - adapter.metrics.base_valid_loss), 1)}{' '}
          <span class="muted small">against its base, on held-out rows</span>
        </p>
      )}
      <p class="row">
        <a class="button slim" href={to(['playground'], { adapter: adapter.id })}>
          <Icon name="chat" size={15} />
          Try it
        </a>
        <a class="button slim quiet" href={to(['evaluations', 'new'], { adapter: adapter.id })}>
          Measure it
        </a>
      </p>
    </article>
  );
}

// A tar of an adapter's folder, of ours or of PEFT's.
function ImportDialog({ models, onClose }: { models: string[]; onClose: () => void }) {
  const [base, setBase] = useState(models[0] ?? '');
  const [suffix, setSuffix] = useState('');
  const [file, setFile] = useState<File | undefined>(undefined);
  const [sent, setSent] = useState(0);
  const id = useRef(requestId());
  const { busy, run } = useAction();
  const submit = () =>
    run('import', async () => {
      if (!file) return say('Choose the tar first.', 'warn');
      const header = { base_model: base, suffix, size_bytes: String(file.size), request_id: id.current };
      const adapter = await upload('AdapterService/ImportAdapter', header, file, setSent);
      say('The adapter fits its base and is here.');
      onClose();
      go(['adapters', adapter.id]);
    });
  return (
    <Dialog title="Import an adapter" onClose={onClose}>
      <form class="stack" onSubmit={(event) => (event.preventDefault(), void submit())}>
        <p class="muted">
          A tar of the folder that holds <code>adapter_config.json</code> and the weights as safetensors. A worker holds every tensor
          against the base model before it counts.
        </p>
        <Select label="Base model" value={base} onValue={setBase} options={models.map((model): [string, string] => [model, model])} />
        <TextInput label="Suffix of its id" value={suffix} onValue={setSuffix} placeholder="my-lora" />
        <label class="field">
          <span class="label">Tar file</span>
          <input type="file" accept=".tar" onChange={(event) => setFile(event.currentTarget.files?.[0])} />
        </label>
        {busy && file && <Bar percentage={(100 * sent) / Math.max(1, file.size)} label="Sent" />}
        {busy && file && sent >= file.size && <Note>A worker checks it …</Note>}
        <div class="row end">
          <button type="button" class="button" onClick={onClose}>
            Close
          </button>
          <Act type="submit" kind="primary" busy={busy !== ''}>
            Import
          </Act>
        </div>
      </form>
    </Dialog>
  );
}
