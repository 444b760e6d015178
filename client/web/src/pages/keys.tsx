import { useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { ApiKey } from '@/api/types';
import { keyLook } from '@/model/api_keys';
import { moment } from '@/model/format';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { TextInput } from '@/ui/form';
import { say } from '@/ui/messages';
import { Act, Ago, Badge, Copy, Empty, ErrorNote, Head, Loading, Note, Stale, useTick } from '@/ui/parts';
import { useCaller } from '@/ui/who';
import { NewKey } from './new_key';
import { MorePages, usePages } from './paging';

export function KeysPage() {
  const caller = useCaller();
  const [tenant, setTenant] = useState('');
  const [making, setMaking] = useState(false);
  const [made, setMade] = useState<ApiKey | undefined>(undefined);
  const may = caller.data?.scopes.includes('admin') ?? false;
  return (
    <div class="stack">
      <Head
        title="API keys"
        actions={
          may && (
            <Act icon="plus" kind="primary" onClick={() => setMaking(true)}>
              New key
            </Act>
          )
        }
      >
        <p>Who may come in, and for what. A key belongs to one tenant; the platform keeps its hash only.</p>
      </Head>
      {caller.data?.key === '' && (
        <Note>
          The platform asks this page for no key: everybody who reaches it may do everything. Keys are asked for once <code>dexd</code> runs
          with <code>--auth on</code>.
        </Note>
      )}
      {made && <Secret made={made} onGone={() => setMade(undefined)} />}
      {!caller.data ? (
        caller.error ? (
          <ErrorNote error={caller.error} retry={caller.refresh} />
        ) : (
          <Loading what="whose key this is" />
        )
      ) : !may ? (
        <Note tone="warn">
          This key may not see keys: it lacks the scope <code>admin</code>. Ask whoever gave it to you.
        </Note>
      ) : (
        <>
          {caller.data.operator && <TenantChoice tenant={tenant} own={caller.data.tenant} onTenant={setTenant} />}
          <KeyList key={`${tenant} ${made?.id ?? ''}`} tenant={tenant} own={caller.data.key} />
        </>
      )}
      {making && caller.data && (
        <NewKey caller={caller.data} tenant={tenant} onClose={() => setMaking(false)} onMade={(key) => (setMade(key), setMaking(false))} />
      )}
    </div>
  );
}

// The operator names another tenant; what is typed counts when it is sent off.
function TenantChoice({ tenant, own, onTenant }: { tenant: string; own: string; onTenant: (tenant: string) => void }) {
  const [text, setText] = useState(tenant);
  return (
    <form class="row end-on" onSubmit={(event) => (event.preventDefault(), onTenant(text.trim()))}>
      <div style={{ width: '260px', maxWidth: '100%' }}>
        <TextInput label="Keys of the tenant" value={text} onValue={setText} placeholder={own} />
      </div>
      <Act type="submit">Show</Act>
    </form>
  );
}

// The one time that a key can be seen.
function Secret({ made, onGone }: { made: ApiKey; onGone: () => void }) {
  return (
    <Note tone={made.secret ? 'good' : 'warn'} live>
      {made.secret ? (
        <>
          <p>
            <strong>“{made.name}” is made. Copy it now: nobody can show it again.</strong>
          </p>
          <div class="command">
            <code>{made.secret}</code>
            <Copy text={made.secret} label="Copy the key" />
          </div>
        </>
      ) : (
        <p>
          “{made.name}” was made by a call whose answer was lost, and its secret with it. Revoke <code>{made.id}</code> and make another
          one.
        </p>
      )}
      <p>
        <button type="button" class="button slim" onClick={onGone}>
          I have it
        </button>
      </p>
    </Note>
  );
}

function KeyList({ tenant, own }: { tenant: string; own: string }) {
  useTick(30_000);
  const { busy, run } = useAction();
  const request = { tenant, page_size: 50 };
  const first = usePoll(`keys ${tenant}`, (signal) => call('AdminService/ListApiKeys', request, signal), 15_000);
  const pages = usePages(
    first.data && { items: first.data.keys, next: first.data.next_page_token },
    async (page_token) =>
      call('AdminService/ListApiKeys', { ...request, page_token }).then((page) => ({ items: page.keys, next: page.next_page_token })),
    (key) => key.id,
  );
  const [revoked, setRevoked] = useState<ReadonlyMap<string, ApiKey>>(new Map());
  const revoke = async (key: ApiKey) => {
    const body = (
      <>
        <p>Whoever uses it is refused within seconds, and nothing brings it back.</p>
        {key.id === own && <p>It is the key that this page sends: the page will ask for another one.</p>}
      </>
    );
    if (!(await ask(`Revoke “${key.name}”?`, body, 'Revoke the key'))) return;
    await run(key.id, async () => {
      const gone = await call('AdminService/RevokeApiKey', { id: key.id, request_id: requestId() });
      setRevoked((old) => new Map(old).set(gone.id, gone));
      say(`“${key.name}” is revoked.`);
    });
  };
  if (!first.data) return first.error ? <ErrorNote error={first.error} retry={first.refresh} /> : <Loading what="the keys" />;
  if (pages.items.length === 0) {
    return (
      <div class="card">
        <Empty icon="key" title="No keys yet">
          <p>A program that is to use the platform gets a key of its own, with no more scopes than it needs.</p>
        </Empty>
      </div>
    );
  }
  return (
    <>
      <Stale error={first.error} since={first.since} />
      <section class="card flush scroll-x" tabIndex={0} aria-label="Keys">
        <table>
          <caption class="hidden">API keys, newest first</caption>
          <thead>
            <tr>
              <th scope="col">Name</th>
              <th scope="col">State</th>
              <th scope="col">May</th>
              <th scope="col">Made</th>
              <th scope="col">Used</th>
              <th scope="col">Ends</th>
              <th scope="col">
                <span class="hidden">Revoke</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {pages.items.map((item) => {
              const key = revoked.get(item.id) ?? item; // of a later page, which isn't renewed
              const look = keyLook(key, Date.now());
              return (
                <tr key={key.id}>
                  <th scope="row">
                    {key.name}
                    {key.id === own && <span class="tag">this page’s</span>}
                    <br />
                    <code class="small muted">{key.prefix}…</code>
                  </th>
                  <td>
                    <Badge tone={look.tone} icon={look.icon}>
                      {look.label}
                    </Badge>
                  </td>
                  <td class="small">{key.scopes.join(' ')}</td>
                  <td>
                    <Ago time={key.create_time} />
                  </td>
                  <td>{key.last_used_time ? <Ago time={key.last_used_time} /> : 'not yet'}</td>
                  <td>{key.expire_time ? moment(key.expire_time) : 'never'}</td>
                  <td>
                    {look.label === 'active' && (
                      <Act kind="slim" busy={busy === key.id} title={`Revoke ${key.name}`} onClick={() => void revoke(key)}>
                        Revoke
                      </Act>
                    )}
                  </td>
                </tr>
              );
            })}
          </tbody>
        </table>
        <MorePages pages={pages} />
      </section>
    </>
  );
}
