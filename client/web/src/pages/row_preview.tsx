import { useEffect, useState } from 'preact/hooks';
import { call } from '@/api/rpc';
import type { Loose, PreviewedRow, PreviewFileRequest, PreviewFileResponse } from '@/api/types';
import { count, plural } from '@/model/format';
import { trainedText } from '@/model/trained_text';
import { useAction } from '@/ui/action';
import { Icon } from '@/ui/icons';
import { Badge } from '@/ui/parts';

// A few rows of a file exactly as the trainer will read them, asked for by a click: what is trained is marked.
export function RowPreview({ file, model, preset, maxSeqLength }: { file: string; model: string; preset: string; maxSeqLength: string }) {
  const [shown, setShown] = useState<PreviewFileResponse | undefined>(undefined);
  const { busy, run } = useAction();
  useEffect(() => setShown(undefined), [file, model, preset, maxSeqLength]);
  const ask = (offset: string) =>
    run('rows', async () => {
      const encoding: Loose<PreviewFileRequest['encoding']> = {};
      if (preset) encoding.preset = preset;
      if (/^\d+$/.test(maxSeqLength.trim())) encoding.max_seq_length = Number(maxSeqLength);
      setShown(await call('FileService/PreviewFile', { file, model, encoding, offset, limit: 5 }));
    });
  const more = shown && shown.next_offset !== '0' ? shown.next_offset : undefined;
  return (
    <div class="stack tight">
      <p>
        <button type="button" class="button" aria-busy={busy === 'rows'} onClick={() => ask(more ?? '0')}>
          <Icon name={busy === 'rows' ? 'spin' : 'info'} class={busy === 'rows' ? 'spin' : ''} size={17} />
          {more ? 'See the next rows' : 'See what is trained of each row'}
        </button>
      </p>
      {shown && (
        <div class="stack tight" aria-live="polite">
          <p class="small muted">
            <mark class="trained">Marked</mark> text is trained, the rest is only read. Rows have at most{' '}
            {plural(shown.encoding?.max_seq_length ?? 0, 'token')}.
          </p>
          {shown.rows.map((row) => (
            <Row key={`${row.line}-${row.sequence}`} row={row} />
          ))}
        </div>
      )}
    </div>
  );
}

function Row({ row }: { row: PreviewedRow }) {
  const part = row.sequences > 1 ? `, part ${row.sequence + 1} of ${row.sequences}` : '';
  return (
    <figure class="row-preview" aria-label={`Line ${row.line}${part}`}>
      <figcaption class="row small muted">
        <strong>
          Line {count(row.line)}
          {part}
        </strong>
        <span>
          {plural(Number(row.trainable_tokens), 'token')} trained, {count(row.prompt_tokens)} only read
        </span>
        {row.truncated_tokens !== '0' && (
          <Badge tone="warn" icon="warn">
            {count(row.truncated_tokens)} cut off
          </Badge>
        )}
        {row.dropped_reason && (
          <Badge tone="bad" icon="warn">
            left out: {row.dropped_reason}
          </Badge>
        )}
      </figcaption>
      {row.dropped_message && <p class="small">{row.dropped_message}</p>}
      <div class="text" tabIndex={0}>
        {trainedText(row.tokens).map((piece) => (piece.trained ? <mark class="trained">{piece.text}</mark> : <span>{piece.text}</span>))}
      </div>
    </figure>
  );
}
