import { useState } from 'preact/hooks';
import { usePoll, type Polled } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { Adapter, AdapterAlias } from '@/api/types';
import { moment } from '@/model/format';
import { targetBefore } from '@/model/serving';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { say } from '@/ui/messages';
import { Act, Ago, Badge, ErrorNote, Loading, Stale } from '@/ui/parts';
import { to } from '@/ui/route';
import { shortName } from './adapters';
import { PointDialog } from './alias_dialog';

// Every alias of the tenant: names are few.
export function useAliases(): Polled<AdapterAlias[]> {
  return usePoll(
    'aliases',
    async (signal) => {
      const aliases: AdapterAlias[] = [];
      let page_token = '';
      do {
        const page = await call('AdapterService/ListAdapterAliases', { page_size: 1000, page_token }, signal);
        aliases.push(...page.aliases);
        page_token = page.next_page_token;
      } while (page_token);
      return aliases;
    },
    8000,
  );
}

// Names that clients say in place of an adapter's id; moving one moves every client at once.
export function Aliases({ adapters }: { adapters: Adapter[] }) {
  const aliases = useAliases();
  const [pointing, setPointing] = useState<AdapterAlias | 'new' | undefined>(undefined);
  if (!aliases.data) return aliases.error ? <ErrorNote error={aliases.error} retry={aliases.refresh} /> : <Loading what="the aliases" />;
  return (
    <section class="card stack tight" aria-label="Aliases">
      <div class="row apart">
        <h2>Aliases</h2>
        <Act icon="plus" kind="slim" onClick={() => setPointing('new')}>
          New alias
        </Act>
      </div>
      <Stale error={aliases.error} since={aliases.since} />
      {aliases.data.length === 0 ? (
        <p class="muted">
          No names yet. An alias such as <code>live</code> is what programs say in place of an adapter’s id: you move it, they stay as they
          are.
        </p>
      ) : (
        <AliasTable aliases={aliases.data} onPoint={setPointing} onChanged={aliases.refresh} />
      )}
      {pointing && (
        <PointDialog
          alias={pointing === 'new' ? undefined : pointing}
          adapters={adapters}
          onClose={() => setPointing(undefined)}
          onDone={aliases.refresh}
        />
      )}
    </section>
  );
}

function AliasTable({
  aliases,
  onPoint,
  onChanged,
}: {
  aliases: AdapterAlias[];
  onPoint: (alias: AdapterAlias) => void;
  onChanged: () => void;
}) {
  const { busy, run } = useAction();
  const rollBack = async (alias: AdapterAlias, before: string) => {
    const body = (
      <p>
        It points to <strong>{shortName(alias.adapter)}</strong> and would point to <strong>{shortName(before)}</strong> again, for every
        client at once. Answers that have begun end as they began.
      </p>
    );
    if (!(await ask(`Roll “${alias.alias}” back?`, body, 'Roll back', false))) return;
    await run(`${alias.alias} back`, async () => {
      const request = { alias: alias.alias, adapter: before, etag: alias.etag, request_id: requestId() };
      await call('AdapterService/SetAdapterAlias', request);
      say(`“${alias.alias}” points to ${shortName(before)} again.`);
      onChanged();
    });
  };
  const remove = async (alias: AdapterAlias) => {
    const body = <p>Programs that say it are refused from then on. Its adapter stays as it is.</p>;
    if (!(await ask(`Delete the alias “${alias.alias}”?`, body, 'Delete the alias'))) return;
    await run(`${alias.alias} delete`, async () => {
      await call('AdapterService/DeleteAdapterAlias', { alias: alias.alias, etag: alias.etag, request_id: requestId() });
      say(`The alias “${alias.alias}” is deleted.`);
      onChanged();
    });
  };
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Aliases, table">
      <table>
        <caption class="hidden">Aliases, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Alias</th>
            <th scope="col">Points to</th>
            <th scope="col">Since</th>
            <th scope="col">Before</th>
            <th scope="col">
              <span class="hidden">Change</span>
            </th>
          </tr>
        </thead>
        <tbody>
          {aliases.map((alias) => {
            const before = targetBefore(alias);
            return (
              <tr key={alias.alias}>
                <th scope="row">
                  <code>{alias.alias}</code>
                </th>
                <td>
                  <a href={to(['adapters', alias.adapter])}>{shortName(alias.adapter)}</a> <code class="small muted">{alias.version}</code>
                  {alias.targets[0]?.gates_overridden && (
                    <>
                      {' '}
                      <Badge tone="warn" icon="warn">
                        gates overridden
                      </Badge>
                    </>
                  )}
                </td>
                <td>
                  <Ago time={alias.targets[0]?.set_time} />
                </td>
                <td>{before ? <History alias={alias} /> : '–'}</td>
                <td>
                  <span class="row">
                    <Act kind="slim" title={`Point ${alias.alias} elsewhere`} onClick={() => onPoint(alias)}>
                      Point
                    </Act>
                    {before && (
                      <Act
                        kind="slim"
                        title={`Roll ${alias.alias} back`}
                        busy={busy === `${alias.alias} back`}
                        onClick={() => void rollBack(alias, before)}
                      >
                        Roll back
                      </Act>
                    )}
                    <Act
                      kind="slim quiet"
                      title={`Delete ${alias.alias}`}
                      busy={busy === `${alias.alias} delete`}
                      onClick={() => void remove(alias)}
                    >
                      Delete
                    </Act>
                  </span>
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}

// The last 20 targets, without where it points now.
function History({ alias }: { alias: AdapterAlias }) {
  return (
    <details class="more">
      <summary>{shortName(alias.targets[1]!.adapter)}</summary>
      <ol class="small">
        {alias.targets.slice(1).map((target, i) => (
          <li key={i}>
            {shortName(target.adapter)}, {moment(target.set_time)}
          </li>
        ))}
      </ol>
    </details>
  );
}
