import { useState } from 'preact/hooks';
import { save } from '@/api/download';
import { usePoll } from '@/api/poll';
import { call, requestId } from '@/api/rpc';
import { bytes, count, moment, num, percent, word } from '@/model/format';
import { useAction } from '@/ui/action';
import { ask } from '@/ui/dialog';
import { Findings } from '@/ui/findings';
import { Icon } from '@/ui/icons';
import { say } from '@/ui/messages';
import { Act, ErrorNote, Facts, Figures, Head, Id, Loading } from '@/ui/parts';
import { go, to } from '@/ui/route';
import { FileStateBadge } from './files';

const atOnce = 100;

export function FilePage({ id }: { id: string }) {
  const file = usePoll(`file ${id}`, (signal) => call('FileService/GetFile', { id }, signal));
  const [code, setCode] = useState('');
  const [most, setMost] = useState(atOnce);
  const findings = usePoll(`findings ${id} ${code} ${most}`, (signal) =>
    call('FileService/ListFindings', { id, codes: code ? [code] : [], page_size: Math.min(1000, most) }, signal),
  );
  const { busy, run } = useAction();
  if (!file.data) return file.error ? <ErrorNote error={file.error} retry={file.refresh} /> : <Loading what="the file" />;
  const data = file.data;
  const s = data.statistics;
  const remove = async () => {
    if (
      !(await ask(
        `Delete “${data.filename}”?`,
        <p>Its bytes and findings go. Adapters that were trained on it stay.</p>,
        'Delete the file',
      ))
    )
      return;
    await run('delete', async () => {
      await call('FileService/DeleteFile', { id, request_id: requestId() });
      say('The file is deleted.');
      go(['files']);
    });
  };
  const codes = Object.entries(data.finding_counts).sort((a, b) => num(b[1]) - num(a[1]));
  return (
    <div class="stack">
      <Head
        title={data.filename}
        actions={
          <>
            {data.state === 'FILE_STATE_READY' && data.purpose === 'FILE_PURPOSE_FINE_TUNE' && (
              <a class="button primary" href={to(['jobs', 'new'], { file: id })}>
                <Icon name="plus" />
                Train on it
              </a>
            )}
            <Act
              icon="download"
              busy={busy === 'save'}
              onClick={() => run('save', () => save('FileService/DownloadFile', { id }, data.filename, () => {}))}
            >
              Download
            </Act>
            <Act icon="trash" busy={busy === 'delete'} onClick={() => void remove()}>
              Delete
            </Act>
          </>
        }
      >
        <p class="row">
          <FileStateBadge state={data.state} />
          <Id id={id} />
        </p>
      </Head>
      {s && num(s.rows_good) + num(s.rows_skipped) > 0 && (
        <Figures
          items={[
            ['Good rows', count(s.rows_good)],
            ['Skipped rows', count(s.rows_skipped)],
            ['Tokens, about', count(s.tokens_guess), 'bytes ÷ 4'],
            ['Characters', count(s.characters)],
            ['Equal rows', count(s.duplicate_rows)],
            ['Longest row', bytes(s.longest_row_bytes)],
          ]}
        />
      )}
      <section class="card stack tight" aria-label="Findings">
        <h2>Findings</h2>
        {codes.length === 0 ? (
          <p class="muted">Nothing to complain about.</p>
        ) : (
          <>
            <div class="chips" role="group" aria-label="Kind of finding">
              <button type="button" class="chip" aria-pressed={code === ''} onClick={() => setCode('')}>
                all
              </button>
              {codes.map(([name, n]) => (
                <button type="button" key={name} class="chip" aria-pressed={code === name} onClick={() => setCode(name)}>
                  {name} <span class="num">{count(n)}</span>
                </button>
              ))}
            </div>
            {findings.data ? (
              <Findings
                findings={findings.data.findings}
                more={
                  num(findings.data.total) > findings.data.findings.length &&
                  most < 1000 && (
                    <button type="button" class="button" onClick={() => setMost(1000)}>
                      Show more of {count(findings.data.total)}
                    </button>
                  )
                }
              />
            ) : (
              <ErrorNote error={findings.error} />
            )}
          </>
        )}
      </section>
      <div class="grid wide">
        {s && <Shares title="Rows by language" rows={s.rows_by_language} total={num(s.rows_good)} />}
        {s && <Shares title="Rows by tag" rows={s.rows_by_tag} total={num(s.rows_good)} />}
        <section class="card" aria-label="About the file">
          <h2>About it</h2>
          <Facts
            items={[
              ['Size', bytes(data.bytes)],
              ['Form', word(data.format, 'FILE_FORMAT')],
              ['For', data.purpose === 'FILE_PURPOSE_EVALS' ? 'measuring' : 'training'],
              ['Sent', moment(data.create_time)],
              ['SHA-256', <code>{data.sha256}</code>],
            ]}
          />
        </section>
      </div>
    </div>
  );
}

function Shares({ title, rows, total }: { title: string; rows: Record<string, string>; total: number }) {
  const entries = Object.entries(rows)
    .map(([name, n]) => [name, num(n)] as const)
    .sort((a, b) => b[1] - a[1]);
  if (entries.length === 0) return null;
  return (
    <section class="card" aria-label={title}>
      <h2>{title}</h2>
      <table>
        <tbody>
          {entries.slice(0, 12).map(([name, n]) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              <td style={{ width: '50%' }}>
                <div class="bar slim" aria-hidden="true">
                  <i style={{ width: `${(100 * n) / Math.max(1, total)}%` }} />
                </div>
              </td>
              <td class="number">
                {count(n)} <span class="muted">({percent(n / Math.max(1, total))})</span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
