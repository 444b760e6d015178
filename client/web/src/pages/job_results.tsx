import { save } from '@/api/download';
import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { FineTuningJob } from '@/api/types';
import { bytes } from '@/model/format';
import { useAction } from '@/ui/action';
import { Act, ErrorNote } from '@/ui/parts';
import { to } from '@/ui/route';

// A job's curves to take along: CSV and JSON lines, which the platform has written at its end.
export function JobResults({ job }: { job: FineTuningJob }) {
  const ids = job.result_files;
  const asked = usePoll(`results ${ids.join(' ')}`, (signal) => Promise.all(ids.map((id) => call('FileService/GetFile', { id }, signal))));
  const { busy, run } = useAction();
  if (ids.length === 0) return null;
  if (asked.error) return <ErrorNote error={asked.error} retry={asked.refresh} />;
  return (
    <section class="card stack tight" aria-label="Result files">
      <h2>Its curves as files</h2>
      {(asked.data ?? []).map((file) => (
        <p class="row apart" key={file.id}>
          <span class="wrap-any">
            <a href={to(['files', file.id])}>{file.filename}</a> <span class="muted small">{bytes(file.bytes)}</span>
          </span>
          <Act
            icon="download"
            kind="slim"
            title={`Download ${file.filename}`}
            busy={busy === file.id}
            onClick={() => run(file.id, () => save('FileService/DownloadFile', { id: file.id }, file.filename, () => {}))}
          >
            Download
          </Act>
        </p>
      ))}
    </section>
  );
}
