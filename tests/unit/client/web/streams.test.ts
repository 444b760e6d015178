import { follow, type Watch } from '@/api/follow';
import { call, stream } from '@/api/rpc';
import type { WatchFineTuningJobResponse } from '@/api/types';

interface Seen {
  url: string;
  body: Record<string, unknown>;
}

// A gateway that answers with `replies` in their order; the last one again and again.
function gateway(replies: (() => Response)[]): Seen[] {
  const seen: Seen[] = [];
  globalThis.fetch = (async (url: string, options: RequestInit) => {
    const reply = replies[Math.min(seen.length, replies.length - 1)]!;
    seen.push({
      url,
      body: JSON.parse(options.body as string) as Record<string, unknown>,
    });
    return reply();
  }) as typeof fetch;
  return seen;
}

const sse =
  (text: string, broken = false) =>
  () =>
    new Response(
      new ReadableStream({
        start(controller) {
          controller.enqueue(new TextEncoder().encode(text));
          if (broken) controller.error(new Error('connection reset'));
          else controller.close();
        },
      }),
    );
const event = (sequence: number) => `data: {"event":{"sequence":"${sequence}","type":"metrics"}}\n\n`;
const snapshot = (state: string) => `data: {"snapshot":{"state":"${state}"}}\n\n`;
const refusal = (status: number, code: string, category: string, retryable: boolean) => () =>
  new Response(
    JSON.stringify({
      error: { message: 'no', code, category, retryable, request_id: 'r1' },
    }),
    { status },
  );
const end = 'event: end\ndata: {}\n\n';

async function watch(replies: (() => Response)[]) {
  const seen = gateway(replies);
  const sequences: string[] = [];
  const told: Watch[] = [];
  await follow(
    'FineTuningService/WatchFineTuningJob',
    'ftjob-1',
    (messages: WatchFineTuningJobResponse[]) => {
      for (const message of messages) if (message.event) sequences.push(message.event.sequence);
    },
    (one) => told.push(one),
    new AbortController().signal,
    [0],
  );
  return { seen, sequences, told };
}

describe('follow', () => {
  it('goes on after the last event that it has seen, so that each comes once', async () => {
    const { seen, sequences, told } = await watch([
      sse(event(1) + event(2)), // the gateway went away without a word
      refusal(503, 'server_draining', 'SYSTEM', true),
      sse(event(3) + 'event: error\ndata: {"error":{"message":"lagged","code":"watch_lagged","category":"SYSTEM","retryable":true}}\n\n'),
      sse(event(4) + end),
    ]);
    expect(sequences).toEqual(['1', '2', '3', '4']);
    expect(seen.map(({ body }) => body.after_sequence)).toEqual(['0', '2', '2', '3']);
    expect(told.at(-1)).toMatchObject({ live: false, ended: true });
    expect(told.some((one) => one.error?.code === 'watch_lagged')).toBe(true);
  });
  it('takes an error without a name for an error, and compares sequences as numbers', async () => {
    const { seen, sequences } = await watch([
      sse(event(9) + event(10) + 'data: {"error":{"message":"x","retryable":true}}\n\n'),
      sse(event(11) + end),
    ]);
    expect(sequences).toEqual(['9', '10', '11']);
    expect(seen[1]!.body.after_sequence).toBe('10');
  });
  it('is over where a body ends whole after the last state, without an event `end`', async () => {
    const { seen, told } = await watch([sse(snapshot('JOB_STATE_RUNNING') + event(1)), sse(snapshot('JOB_STATE_SUCCEEDED'))]);
    expect(seen).toHaveLength(2);
    expect(told.at(-1)?.ended).toBe(true);
  });
  it('gives up on what trying again can’t change', async () => {
    const { seen, told } = await watch([refusal(404, 'resource_not_found', 'USER', false)]);
    expect(seen).toHaveLength(1);
    expect(told.at(-1)).toMatchObject({ ended: true });
    expect(told.at(-1)?.error?.requestId).toBe('r1');
  });
});

describe('stream', () => {
  it('delivers what came before an error, then fails with it', async () => {
    gateway([
      sse('data: {"delta":{"text":"a"}}\n\ndata: {"error":{"message":"engine lost","code":"engine_lost","category":"SYSTEM"}}\n\n'),
    ]);
    const got: unknown[] = [];
    await expect(stream('InferenceService/GenerateStream', { model: 'm' }, (messages) => void got.push(...messages))).rejects.toMatchObject(
      { code: 'engine_lost' },
    );
    expect(got).toEqual([{ delta: { text: 'a' } }]);
  });
  it('fails where the connection breaks', async () => {
    gateway([sse('data: {"delta":{"text":"a"}}\n\n', true)]);
    await expect(stream('InferenceService/GenerateStream', { model: 'm' }, () => {})).rejects.toMatchObject({ code: 'unreachable' });
  });
});

describe('call', () => {
  it('names its method in the path', async () => {
    const seen = gateway([() => new Response('{"models":[]}')]);
    expect(await call('ModelService/ListModels', {})).toEqual({ models: [] });
    expect(seen[0]!.url).toBe('/rpc/dex.v1.ModelService/ListModels');
  });
  it('makes an error of any answer, also of one that is not JSON', async () => {
    gateway([() => new Response('<html>bad gateway</html>', { status: 502 })]);
    await expect(call('ModelService/ListModels', {})).rejects.toMatchObject({
      status: 502,
      category: 'SYSTEM',
      retryable: true,
    });
    gateway([refusal(429, 'queue_full', 'CAPACITY', true)]);
    await expect(call('ModelService/ListModels', {})).rejects.toMatchObject({
      code: 'queue_full',
      category: 'CAPACITY',
    });
  });
});
