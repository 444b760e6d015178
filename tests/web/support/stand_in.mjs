// A gateway for tests of the dashboard: its files with the gateway's headers, and /rpc from a world that is made up. Every
// request must be one that the real gateway would take, every answer is printed as it prints them (contract.mjs).
import { createServer } from 'node:http';
import { existsSync, readFileSync, statSync } from 'node:fs';
import { extname, join, normalize } from 'node:path';
import { check, messageOf, methodOf, print } from './contract.mjs';
import { answersOf, streamsOf } from './stand_in_calls.mjs';
import { makeWorld } from './world.mjs';

const types = {
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.css': 'text/css; charset=utf-8',
  '.svg': 'image/svg+xml',
  '.woff2': 'font/woff2',
};
export const policy = "default-src 'self'";

export class Refusal extends Error {
  constructor(status, code, message, category = 'USER', retryable = false) {
    super(message);
    Object.assign(this, { status, code, category, retryable });
  }
  get body() {
    return {
      error: {
        message: this.message,
        type: 'invalid_request_error',
        param: null,
        code: this.code,
        category: this.category,
        retryable: this.retryable,
        request_id: 'req-1',
        details: [],
      },
    };
  }
}

// start({ root }): serves the built dashboard in `root`. `calls` counts by method; `faults` lists what the contract forbids;
// `down` makes every call fail as if the platform were away; `key` makes it ask for that API key.
export async function start({ root, jobs }) {
  const world = makeWorld({ jobs });
  const state = {
    world,
    calls: new Map(),
    faults: [],
    down: false,
    key: '',
    streams: new Set(),
    port: 0,
    stop,
  };
  const answers = answersOf(world, Refusal);
  const streams = streamsOf(world, state, Refusal);

  const server = createServer((request, response) => {
    handle(request, response).catch((cause) => {
      if (!(cause instanceof Refusal)) state.faults.push(`${request.url}: ${cause.message}`);
      const refusal = cause instanceof Refusal ? cause : new Refusal(400, 'unknown_field', cause.message);
      if (response.headersSent) return response.end(`event: error\ndata: ${JSON.stringify(refusal.body)}\n\n`);
      response.writeHead(refusal.status, { 'content-type': 'application/json' }).end(JSON.stringify(refusal.body));
    });
  });

  async function handle(request, response) {
    const path = new URL(request.url, 'http://x').pathname;
    if (request.method === 'GET') return serve(path, response);
    if (request.method !== 'POST' || !path.startsWith('/rpc/dex.v1.'))
      throw new Refusal(404, 'route_not_found', `no ${request.method} ${path}`);
    const name = path.slice('/rpc/dex.v1.'.length);
    state.calls.set(name, (state.calls.get(name) ?? 0) + 1);
    const body = await bodyOf(request);
    if (state.down) throw new Refusal(503, 'store_unavailable', 'The store is away.', 'SYSTEM', true);
    const sent = request.headers.authorization;
    if (state.key && sent !== `Bearer ${state.key}`) {
      throw new Refusal(401, sent ? 'api_key_invalid' : 'api_key_missing', sent ? 'This API key is not known.' : 'An API key is needed.');
    }
    const method = methodOf(name);
    if (!method) throw new Error(`${name} is no method of dex.v1`);
    if (method.methodKind === 'client_streaming') return upload(name, method, request, body, response);
    const json = JSON.parse(body.toString('utf8'));
    check(method.input, json);
    if (method.methodKind === 'server_streaming') return stream(name, method, json, request, response);
    if (!answers[name]) throw new Error(`the stand-in has no answer to ${name}`);
    const answer = JSON.stringify(print(method.output, await answers[name](json))); // a refusal is an HTTP error
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  }

  async function stream(name, method, json, request, response) {
    const messages = streams[name];
    if (!messages) throw new Error(`the stand-in has no stream ${name}`);
    const iterator = messages(json)[Symbol.asyncIterator]();
    const first = await iterator.next(); // a refusal is an HTTP error
    response.writeHead(200, {
      'content-type': 'text/event-stream',
      'cache-control': 'no-cache',
    });
    state.streams.add(response);
    let gone = false;
    let resume = () => {};
    response.on('drain', () => resume());
    response.on('close', () => ((gone = true), state.streams.delete(response), resume()));
    let text = '';
    let curves = 0;
    const flush = async () => {
      if (text !== '' && !response.write(text) && !gone) await new Promise((resolve) => (resume = resolve));
      text = '';
    };
    for (let next = first; !next.done && !gone; ) {
      // A long history's curves are printed as they are; the first of them are held against the contract.
      const bare = next.value.event?.metrics !== undefined && curves++ > 300;
      text += `data: ${JSON.stringify(bare ? next.value : print(method.output, next.value))}\n\n`;
      const pending = iterator.next();
      const late =
        text.length > 64_000 || (await Promise.race([pending.then(() => false), new Promise((resolve) => setImmediate(resolve, true))]));
      if (late) await flush(); // nothing more for now, or enough
      next = await pending;
    }
    if (!gone) response.end(`${text}event: end\ndata: {}\n\n`);
    await iterator.return?.();
  }

  function upload(name, method, request, body, response) {
    const boundary = /boundary=(.+)$/.exec(request.headers['content-type'] ?? '')?.[1];
    if (!boundary) throw new Error(`${name} needs multipart/form-data`);
    const parts = body
      .toString('latin1')
      .split(`--${boundary}`)
      .slice(1, -1)
      .map((part) => {
        const split = part.indexOf('\r\n\r\n');
        return {
          head: part.slice(0, split),
          data: Buffer.from(part.slice(split + 4, -2), 'latin1'),
        };
      });
    const header = parts.find((part) => part.head.includes('name="header"'));
    const file = parts.find((part) => part.head.includes('name="file"'));
    if (!header || !file || parts.indexOf(header) > parts.indexOf(file)) throw new Error(`${name}: the part header comes first, then file`);
    const json = JSON.parse(header.data.toString('utf8'));
    check(messageOf(name === 'FileService/UploadFile' ? 'UploadFileRequest.Header' : 'ImportAdapterRequest.Header'), json);
    const answer = JSON.stringify(print(method.output, answers[name](json, file.data)));
    response.writeHead(200, { 'content-type': 'application/json' }).end(answer);
  }

  function serve(path, response) {
    const file = join(root, normalize(path === '/' ? '/index.html' : path));
    if (!file.startsWith(root) || !existsSync(file) || !statSync(file).isFile()) throw new Refusal(404, 'route_not_found', `no ${path}`);
    const zipped = existsSync(`${file}.gz`);
    response.writeHead(200, {
      'content-type': types[extname(file)] ?? 'application/octet-stream',
      'content-security-policy': policy,
      'x-content-type-options': 'nosniff',
      ...(zipped ? { 'content-encoding': 'gzip' } : {}),
    });
    response.end(readFileSync(zipped ? `${file}.gz` : file));
  }

  async function stop() {
    for (const response of state.streams) response.destroy();
    server.closeAllConnections?.();
    await new Promise((resolve) => server.close(resolve));
  }

  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  state.port = server.address().port;
  state.url = `http://127.0.0.1:${state.port}`;
  return state;
}

async function bodyOf(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}
