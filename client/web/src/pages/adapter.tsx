import { useState } from 'preact/hooks';
import { save } from '@/api/download';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import type { Adapter, Export } from '@/api/types';
import { CellMap } from '@/charts/cell_map';
import { bytes, count, figure, loss, moment, num, percent } from '@/model/format';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Select } from '@/ui/form';
import { Act, Badge, Command, ErrorNote, Facts, Figures, Head, Id, Loading, Note, Stale } from '@/ui/parts';
import { go, to } from '@/ui/route';
import { LoadBadge, shortName } from './adapters';
import { Serving } from './adapter_serving';
import { AdapterMarks, Gates, verdictOf } from './job_verdict';

export function AdapterPage({ id }: { id: string }) {
  const asked = usePoll(`adapter ${id}`, (signal) => call('AdapterService/GetAdapter', { id }, signal), 4000);
  const { busy, run } = useAction();
  const [received, setReceived] = useState(0);
  if (!asked.data) return asked.error ? <ErrorNote error={asked.error} retry={asked.refresh} /> : <Loading what="the adapter" />;
  const adapter = asked.data;
  const loaded = adapter.desired === 'DESIRED_DEVICE';
  const remove = async () => {
    if (
      !(await ask(
        `Delete “${shortName(id)}”?`,
        <p>Its record and files go, and nothing brings them back but training again.</p>,
        'Delete the adapter',
      ))
    )
      return;
    await run('delete', async () => {
      await call('AdapterService/DeleteAdapter', { id, request_id: requestId() });
      say('The adapter is deleted.');
      go(['adapters']);
    });
  };
  return (
    <div class="stack">
      <Head
        title={shortName(id)}
        actions={
          <>
            <a class="button primary" href={to(['playground'], { adapter: id })}>
              <Icon name="chat" />
              Try it
            </a>
            {loaded ? (
              <Act
                icon="stop"
                busy={busy === 'unload'}
                disabled={adapter.pinned}
                {...(adapter.pinned ? { title: 'It is pinned: unpin it first.' } : {})}
                onClick={() =>
                  run('unload', async () => {
                    await call('AdapterService/UnloadAdapter', { id, request_id: requestId() });
                    say('It leaves memory once its running requests are done.');
                    asked.refresh();
                  })
                }
              >
                Unload
              </Act>
            ) : (
              <Act
                icon="play"
                busy={busy === 'load'}
                onClick={() =>
                  run('load', async () => {
                    await call('AdapterService/LoadAdapter', { id, wait_seconds: 60, request_id: requestId() });
                    say('Every worker that serves its base has loaded and proven it.');
                    asked.refresh();
                  })
                }
              >
                Load
              </Act>
            )}
            <Act
              icon="download"
              busy={busy === 'save'}
              onClick={() => run('save', () => save('AdapterService/DownloadAdapter', { id }, `${shortName(id)}.tar`, setReceived))}
            >
              {busy === 'save' && received > 0 ? bytes(received) : 'Download'}
            </Act>
            <Act icon="trash" busy={busy === 'delete'} onClick={() => void remove()}>
              Delete
            </Act>
          </>
        }
      >
        <p class="row">
          <LoadBadge adapter={adapter} />
          {adapter.pinned && (
            <Badge tone="info" icon="check">
              pinned
            </Badge>
          )}
          <AdapterMarks promotable={adapter.promotable} verdict={adapter.branch_effect?.verdict} />
        </p>
        <p>
          <Id id={id} />
        </p>
      </Head>
      <Stale error={asked.error} since={asked.since} />
      {adapter.metrics && (
        <Figures
          items={[
            ['Held-out loss, base', loss(adapter.metrics.base_valid_loss)],
            ['Held-out loss, adapted', loss(adapter.metrics.valid_loss)],
            ['Perplexity', percent(Math.expm1(num(adapter.metrics.valid_loss) - num(adapter.metrics.base_valid_loss)), 1)],
            [
              'Branch',
              adapter.branch_effect && adapter.branch_effect.verdict !== 'VERDICT_NOT_APPLICABLE'
                ? percent(adapter.branch_effect.value, 2)
                : 'none',
            ],
            ['Size', bytes(adapter.bytes)],
            ['Added parameters', count(adapter.metrics.added_parameters)],
          ]}
        />
      )}
      {adapter.branch_effect && adapter.branch_effect.verdict !== 'VERDICT_UNSPECIFIED' && (
        <p class="muted">{verdictOf(adapter.branch_effect.verdict).words}</p>
      )}
      <div class="grid wide">
        <section class="card stack tight" aria-label="About the adapter">
          <h2>About it</h2>
          <Facts
            items={[
              ['Base model', adapter.base_model],
              ['Method', [adapter.method, adapter.form, adapter.projection, adapter.train].filter(Boolean).join(', ')],
              ['From', adapter.origin === 'ORIGIN_IMPORTED' ? 'imported' : <a href={to(['jobs', adapter.job])}>its job</a>],
              ...(adapter.start_adapter
                ? [
                    ['Goes on from', <a href={to(['adapters', adapter.start_adapter])}>{shortName(adapter.start_adapter)}</a>] as [
                      string,
                      preact.VNode,
                    ],
                  ]
                : []),
              ['Made', moment(adapter.create_time)],
              ['Version', <code>{adapter.version}</code>],
              ['Content', <code>{adapter.content_sha256}</code>],
              ['Base weights', <code>{adapter.base_weights_sha256}</code>],
            ]}
          />
          <Command text={`dexctl adapters download ${id} ${shortName(id).replace('…', '')}`} />
        </section>
        <section class="card stack tight" aria-label="Workers">
          <Serving adapter={adapter} onChanged={asked.refresh} />
          <Fold adapter={adapter} />
        </section>
      </div>
      {adapter.gate_results.length > 0 && (
        <section class="card" aria-label="Gates">
          <h2>Gates</h2>
          <Gates gates={adapter.gate_results} />
        </section>
      )}
      <LayerEffect adapter={adapter} />
    </div>
  );
}

function Fold({ adapter }: { adapter: Adapter }) {
  const [dtype, setDtype] = useState('DTYPE_UNSPECIFIED');
  const [made, setMade] = useState<Export | undefined>(undefined);
  const [received, setReceived] = useState(0);
  const { busy, run } = useAction();
  const certificate = made?.certificate;
  return (
    <div class="stack tight">
      <h2 class="page-end">As one plain model</h2>
      <p class="muted small">
        Folds the adapter into its base: a Hugging Face folder that any program loads, at no cost in speed. It comes with a certificate of
        how far it is from base and adapter.
      </p>
      <div class="row end-on">
        <div style={{ width: '190px' }}>
          <Select
            label="Weights in"
            value={dtype}
            onValue={setDtype}
            options={[
              ['DTYPE_UNSPECIFIED', 'the base’s type'],
              ['DTYPE_FP32', 'float32'],
              ['DTYPE_BF16', 'bfloat16'],
            ]}
          />
        </div>
        <Act
          icon="adapters"
          busy={busy === 'fold'}
          onClick={() =>
            run('fold', async () => {
              const request = {
                adapter: adapter.id,
                kind: 'KIND_FOLDED_SAFETENSORS',
                request_id: requestId(),
                ...(dtype === 'DTYPE_UNSPECIFIED' ? {} : { dtype: dtype as 'DTYPE_FP32' }),
              } as const;
              setMade(await call('AdapterService/ExportAdapter', request));
            })
          }
        >
          {busy === 'fold' ? 'A worker folds it …' : 'Make it'}
        </Act>
      </div>
      {made && certificate && (
        <Note tone={certificate.within_bound ? 'good' : 'warn'} live>
          <p>
            <strong>
              {certificate.within_bound
                ? 'Folded; rounding explains the difference.'
                : 'Folded, but the difference is more than rounding explains.'}
            </strong>
          </p>
          <p class="small">
            Largest difference of a logit {figure(certificate.largest_logit_difference)}, mean {figure(certificate.mean_logit_difference)},
            over {count(certificate.tokens)} tokens; {certificate.dtype}; {bytes(made.bytes)}.
          </p>
          <p>
            <Act
              icon="download"
              busy={busy === 'save'}
              onClick={() =>
                run('save', () =>
                  save('AdapterService/DownloadAdapter', { export: made.id }, `${shortName(adapter.id)}-folded.tar`, setReceived),
                )
              }
            >
              {busy === 'save' && received > 0 ? bytes(received) : 'Download the model'}
            </Act>
          </p>
        </Note>
      )}
      {made?.error && (
        <Note tone="bad" live>
          {made.error}
        </Note>
      )}
    </div>
  );
}

function LayerEffect({ adapter }: { adapter: Adapter }) {
  const layers = adapter.branch_effect?.per_layer ?? [];
  if (layers.length === 0) return null;
  const rows = [
    {
      title: 'λ by layer',
      values: layers.map((layer) => num(layer.lambda)),
      format: (v: number) => figure(v, 2),
      text: 'How strongly each layer subtracts',
    },
    {
      title: 'Branch ratio by layer',
      values: layers.map((layer) => num(layer.ratio)),
      format: (v: number) => percent(v, 1),
      text: 'Share of the heads’ output that the branch changes; grey: no chosen head',
    },
  ];
  return (
    <div class="grid wide">
      {rows.map(({ title, values, format, text }) => {
        const finite = values.filter(Number.isFinite);
        return (
          <CellMap
            key={title}
            title={title}
            summary={`${text}: ${format(Math.min(...finite))} to ${format(Math.max(...finite))}.`}
            rows={['']}
            columns={layers.map((_, i) => String(i))}
            rowName=""
            columnName="layer"
            values={[values]}
            format={format}
            cell={44}
            low={0}
          />
        );
      })}
    </div>
  );
}
