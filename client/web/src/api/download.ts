import type { Streams } from './methods';
import { stream } from './rpc';
import type { Loose } from './types';

type Downloads = 'EvaluationService/DownloadEvaluation' | 'AdapterService/DownloadAdapter' | 'FileService/DownloadFile';

function bytesOf(base64: string): Uint8Array<ArrayBuffer> {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

interface Picker {
  showSaveFilePicker?: (options: { suggestedName: string }) => Promise<{ createWritable(): Promise<FileSystemWritableFileStream> }>;
}

// Saves what a download call streams: straight to the disk where the browser can, else through memory.
export async function save<K extends Downloads>(
  name: K,
  request: Loose<Streams[K][0]>,
  filename: string,
  onBytes: (bytes: number) => void,
  signal?: AbortSignal,
): Promise<void> {
  const picker = (window as Picker).showSaveFilePicker;
  const sink = picker && !navigator.webdriver ? await (await picker.call(window, { suggestedName: filename })).createWritable() : undefined;
  const parts: Uint8Array<ArrayBuffer>[] = [];
  let total = 0;
  try {
    await stream(
      name,
      request,
      async (messages) => {
        for (const message of messages as unknown as { chunk: string }[]) {
          const bytes = bytesOf(message.chunk);
          total += bytes.length;
          if (sink) await sink.write(bytes);
          else parts.push(bytes);
        }
        onBytes(total);
      },
      signal,
    );
  } catch (cause) {
    await sink?.abort().catch(() => {});
    throw cause;
  }
  if (sink) return sink.close();
  const address = URL.createObjectURL(new Blob(parts));
  const link = document.createElement('a');
  link.href = address;
  link.download = filename;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 60_000);
}
