import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import { bytes, count, word } from '@/model/format';
import { FileDrop } from '@/ui/file_drop';
import { Ago, Badge, Empty, ErrorNote, Head, Loading, Stale } from '@/ui/parts';
import { to } from '@/ui/route';
import { usePages, MorePages } from './paging';

export function FileStateBadge({ state }: { state: string }) {
  if (state === 'FILE_STATE_READY')
    return (
      <Badge tone="good" icon="check">
        ready
      </Badge>
    );
  if (state === 'FILE_STATE_INVALID')
    return (
      <Badge tone="bad" icon="cross">
        faulty
      </Badge>
    );
  return (
    <Badge tone="info" icon="clock">
      {word(state, 'FILE_STATE')}
    </Badge>
  );
}

export function FilesPage() {
  const first = usePoll('files', (signal) => call('FileService/ListFiles', { page_size: 50 }, signal), 10_000);
  const pages = usePages(
    first.data && { items: first.data.files, next: first.data.next_page_token },
    async (token) =>
      call('FileService/ListFiles', { page_size: 200, page_token: token }).then((r) => ({ items: r.files, next: r.next_page_token })),
    (file) => file.id,
  );
  return (
    <div class="stack">
      <Head title="Data">
        <p>Files of examples to train on, and texts and questions to measure with. Each is checked line by line while it arrives.</p>
      </Head>
      <FileDrop purpose="FILE_PURPOSE_FINE_TUNE" onDone={first.refresh} />
      <Stale error={first.error} since={first.since} />
      {!first.data ? (
        first.error ? (
          <ErrorNote error={first.error} retry={first.refresh} />
        ) : (
          <Loading what="the files" />
        )
      ) : pages.items.length === 0 ? (
        <div class="card">
          <Empty icon="data" title="No files yet">
            <p>Drop one above. A hundred good rows are a start.</p>
          </Empty>
        </div>
      ) : (
        <section class="card flush scroll-x" tabIndex={0} aria-label="Data files">
          <table>
            <thead>
              <tr>
                <th scope="col">File</th>
                <th scope="col">State</th>
                <th scope="col">For</th>
                <th scope="col">Form</th>
                <th scope="col" class="number">
                  Rows
                </th>
                <th scope="col" class="number">
                  Tokens, about
                </th>
                <th scope="col" class="number">
                  Size
                </th>
                <th scope="col">Sent</th>
              </tr>
            </thead>
            <tbody>
              {pages.items.map((file) => (
                <tr key={file.id}>
                  <th scope="row">
                    <a href={to(['files', file.id])}>{file.filename}</a>
                  </th>
                  <td>
                    <FileStateBadge state={file.state} />
                  </td>
                  <td>{file.purpose === 'FILE_PURPOSE_EVALS' ? 'measuring' : 'training'}</td>
                  <td>{word(file.format, 'FILE_FORMAT')}</td>
                  <td class="number">{count(file.statistics?.rows_good)}</td>
                  <td class="number">{count(file.statistics?.tokens_guess)}</td>
                  <td class="number">{bytes(file.bytes)}</td>
                  <td>
                    <Ago time={file.create_time} />
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
          <MorePages pages={pages} />
        </section>
      )}
    </div>
  );
}
