import { useEffect, useRef, useState } from 'preact/hooks';
import { asRpcError, type RpcError } from '@/api/error';
import { requestId, upload } from '@/api/rpc';
import type { File as DataFile } from '@/api/types';
import { bytes, count, percent, plural } from '@/model/format';
import { Precheck, type EarlyFinding } from '@/model/precheck';
import { Findings } from './findings';
import { Icon } from './icons';
import { Bar, Badge, ErrorNote, Note } from './parts';

interface Going {
  name: string;
  size: number;
  sent: number;
  rows: number;
  findings: EarlyFinding[];
  counts: [string, number][];
}

// A place to drop a data file: it goes out at once, while this browser takes a first look at its lines. The server's
// verdict, which comes with the last byte, replaces that look.
export function FileDrop({
  purpose,
  onDone,
  what = 'training data',
}: {
  purpose: 'FILE_PURPOSE_FINE_TUNE' | 'FILE_PURPOSE_EVALS';
  onDone: (file: DataFile) => void;
  what?: string;
}) {
  const [going, setGoing] = useState<Going | undefined>(undefined);
  const [done, setDone] = useState<DataFile | undefined>(undefined);
  const [error, setError] = useState<RpcError | undefined>(undefined);
  const [over, setOver] = useState(false);
  const stop = useRef<AbortController>();
  useEffect(() => () => stop.current?.abort(), []);

  const take = async (file: File | undefined) => {
    if (!file || going) return;
    const control = (stop.current = new AbortController());
    const state: Going = { name: file.name, size: file.size, sent: 0, rows: 0, findings: [], counts: [] };
    const show = () => setGoing({ ...state });
    setDone(undefined);
    setError(undefined);
    show();
    if (purpose === 'FILE_PURPOSE_FINE_TUNE')
      void look(file, control.signal, (check) => {
        Object.assign(state, { rows: check.rows, findings: check.findings.slice(0, 20), counts: [...check.counts] });
        show();
      });
    try {
      const header = { filename: file.name, purpose, size_bytes: String(file.size), request_id: requestId() };
      const made = await upload('FileService/UploadFile', header, file, (sent) => ((state.sent = sent), show()), control.signal);
      setDone(made);
      onDone(made);
    } catch (cause) {
      if (!control.signal.aborted) setError(asRpcError(cause));
    }
    control.abort();
    setGoing(undefined);
  };

  return (
    <div class="stack tight">
      <div
        class={`drop${over ? ' over' : ''}`}
        onDragOver={(event) => (event.preventDefault(), setOver(true))}
        onDragLeave={() => setOver(false)}
        onDrop={(event) => (event.preventDefault(), setOver(false), void take(event.dataTransfer?.files[0]))}
      >
        <Icon name="upload" size={28} />
        <strong>{going ? `Sending ${going.name}` : `Drop ${what} here, or choose a file`}</strong>
        <span class="muted small">
          {purpose === 'FILE_PURPOSE_FINE_TUNE'
            ? 'JSON Lines: chats (messages), prompt and completion, text, or token ids. Every line is checked on its way in.'
            : 'Plain text or JSON Lines, as the task reads it.'}
        </span>
        <input
          type="file"
          aria-label={`Choose ${what}`}
          disabled={going !== undefined}
          onChange={(event) => (void take(event.currentTarget.files?.[0]), (event.currentTarget.value = ''))}
        />
      </div>
      {going && (
        <div class="card stack tight" aria-live="polite">
          <div class="row apart">
            <strong class="wrap-any">{going.name}</strong>
            <span class="row">
              <span class="num small">
                {bytes(going.sent)} of {bytes(going.size)} ({percent(going.size ? going.sent / going.size : 0)})
              </span>
              <button class="button slim" type="button" onClick={() => stop.current?.abort()}>
                Stop
              </button>
            </span>
          </div>
          <Bar percentage={going.size ? (100 * going.sent) / going.size : 0} label="Sent" />
          {going.rows + going.findings.length > 0 && (
            <p class="small muted">
              First look in this browser: {plural(going.rows, 'good row')} so far
              {going.counts.length > 0 && <>, {going.counts.map(([code, n]) => `${code} ${count(n)}`).join(', ')}</>}. The server’s verdict
              follows.
            </p>
          )}
          <Findings findings={going.findings} />
        </div>
      )}
      <ErrorNote error={error} />
      {done && <FileVerdict file={done} />}
    </div>
  );
}

// Reads the file a second time, in pieces, without holding it.
async function look(file: File, signal: AbortSignal, tell: (check: Precheck) => void) {
  const check = new Precheck();
  const reader = file.stream().pipeThrough(new TextDecoderStream()).getReader();
  let told = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (signal.aborted) return;
      if (done) break;
      check.add(value);
      if (Date.now() - told > 150) ((told = Date.now()), tell(check));
    }
    check.end();
    if (!signal.aborted) tell(check);
  } catch {
    // A file that can't be read says so when it is sent.
  } finally {
    reader.cancel().catch(() => {});
  }
}

export function FileVerdict({ file }: { file: DataFile }) {
  const found = Object.entries(file.finding_counts);
  const s = file.statistics;
  if (file.state === 'FILE_STATE_READY') {
    return (
      <Note tone="good" live>
        <p>
          <strong>
            {file.filename} can be used
            {s && Number(s.rows_good) > 0 ? `: ${plural(Number(s.rows_good), 'row')}, about ${count(s.tokens_guess)} tokens` : ''}.
          </strong>
        </p>
        {found.length > 0 && <p class="small">Noticed: {found.map(([code, n]) => `${code} ${count(n)}`).join(', ')}.</p>}
        {file.findings.length > 0 && <Findings findings={file.findings} />}
      </Note>
    );
  }
  return (
    <Note tone="bad" live>
      <p>
        <strong>{file.filename} can’t be used yet.</strong> Repair these lines and drop it again; all faults are listed at once.
      </p>
      <p class="row">
        {found.map(([code, n]) => (
          <Badge key={code}>
            {code} × {count(n)}
          </Badge>
        ))}
      </p>
      <Findings findings={file.findings} />
    </Note>
  );
}
