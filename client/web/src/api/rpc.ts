import { asRpcError, errorOfBody, RpcError, unreachable } from './error';
import type { Streams, Unary, Uploads } from './methods';
import { apiKey, authorization, keyWanted } from './session';
import { SseParser } from './sse';
import type { Loose } from './types';

const url = (name: string) => `/rpc/dex.v1.${name}`;

// One for each thing a user does, so that a repeat after a broken connection has one effect. Not crypto.randomUUID, which
// browsers keep from pages that come by plain HTTP from another machine.
export function requestId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

// `sent`: the key that the call had. Another one may have been given since: then a late refusal of the old one asks for nothing.
function refuse(error: RpcError, sent = apiKey.get()): never {
  if (error.needsKey && sent === apiKey.get()) keyWanted.set(true);
  throw error;
}

async function post(name: string, body: BodyInit, headers: Record<string, string>, signal?: AbortSignal): Promise<Response> {
  const sent = apiKey.get();
  let response: Response;
  try {
    response = await fetch(url(name), { method: 'POST', body, headers: { ...headers, ...authorization() }, signal: signal ?? null });
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  }
  if (!response.ok) refuse(errorOfBody(response.status, await response.text().catch(() => '')), sent);
  return response;
}

export async function call<K extends keyof Unary>(name: K, request: Loose<Unary[K][0]>, signal?: AbortSignal): Promise<Unary[K][1]> {
  const response = await post(name, JSON.stringify(request), { 'content-type': 'application/json' }, signal);
  try {
    return (await response.json()) as Unary[K][1];
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw unreachable(cause);
  }
}

// Calls `onMessages` with what each piece of the stream brought, and returns when the stream has ended: with 'end' where
// the gateway said so (an event `end`), with 'closed' where the body was whole and just stopped. A connection that breaks
// is an error, and so is an event `error`, or one whose data is {"error": …}.
export async function stream<K extends keyof Streams>(
  name: K,
  request: Loose<Streams[K][0]>,
  onMessages: (messages: Streams[K][1][]) => void | Promise<void>,
  signal?: AbortSignal,
  onBytes?: () => void,
): Promise<'end' | 'closed'> {
  const headers = { 'content-type': 'application/json', accept: 'text/event-stream' };
  const response = await post(name, JSON.stringify(request), headers, signal);
  const reader = response.body!.pipeThrough(new TextDecoderStream()).getReader();
  const parser = new SseParser();
  try {
    for (;;) {
      const { done, value } = await reader.read().catch((cause) => {
        if (signal?.aborted) throw cause;
        throw unreachable(cause);
      });
      if (done) return 'closed';
      onBytes?.();
      const messages: Streams[K][1][] = [];
      let ended = false;
      for (const event of parser.push(value)) {
        if (event.event === 'end') {
          ended = true;
          break;
        }
        const data = JSON.parse(event.data) as Streams[K][1] | { error: unknown };
        if ('error' in data) {
          if (messages.length > 0) await onMessages(messages);
          refuse(errorOfBody(500, event.data));
        }
        messages.push(data as Streams[K][1]);
      }
      if (messages.length > 0) await onMessages(messages);
      if (ended) return 'end';
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Sends a file with its header. XMLHttpRequest, since fetch tells nobody how far an upload is.
export function upload<K extends keyof Uploads>(
  name: K,
  header: Loose<Uploads[K][0]>,
  file: Blob,
  onProgress: (sent: number, total: number) => void,
  signal?: AbortSignal,
): Promise<Uploads[K][1]> {
  return new Promise((resolve, reject) => {
    const form = new FormData();
    form.append('header', new Blob([JSON.stringify(header)], { type: 'application/json' }));
    form.append('file', file, 'file');
    const key = apiKey.get();
    const request = new XMLHttpRequest();
    request.open('POST', url(name));
    for (const [field, value] of Object.entries(authorization())) request.setRequestHeader(field, value);
    request.upload.onprogress = (event) => onProgress(Math.min(event.loaded, file.size), file.size);
    request.onerror = () => reject(unreachable(undefined));
    request.onabort = () => reject(new DOMException('aborted', 'AbortError'));
    request.onload = () => {
      try {
        if (request.status === 200) resolve(JSON.parse(request.responseText) as Uploads[K][1]);
        else refuse(errorOfBody(request.status, request.responseText), key);
      } catch (cause) {
        reject(asRpcError(cause));
      }
    };
    signal?.addEventListener('abort', () => request.abort());
    if (signal?.aborted) request.abort();
    else request.send(form);
  });
}
