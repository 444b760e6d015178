import { call, stream } from '@/api/rpc';
import { apiKey, keyIsStored, keyWanted, takeKey } from '@/api/session';

// The browser's storage; node has none.
function storage() {
  const kept = new Map<string, string>();
  const made = {
    getItem: (key: string) => kept.get(key) ?? null,
    setItem: (key: string, value: string) => void kept.set(key, value),
    removeItem: (key: string) => void kept.delete(key),
  };
  vi.stubGlobal('localStorage', made);
  return kept;
}

// A gateway that knows one key; `late` is done before it answers.
function gateway(right: string, late: () => void = () => {}) {
  const sent: (string | null)[] = [];
  vi.stubGlobal('fetch', async (_: string, options: RequestInit) => {
    const authorization = new Headers(options.headers).get('authorization');
    sent.push(authorization);
    late();
    return authorization === `Bearer ${right}`
      ? new Response('{}')
      : new Response(JSON.stringify({ error: { message: 'An API key is needed.', code: 'api_key_missing' } }), { status: 401 });
  });
  return sent;
}

describe('the API key', () => {
  beforeEach(() => (storage(), takeKey('', false)));
  afterEach(() => void vi.unstubAllGlobals());

  it('goes with every call and stream, and one that is refused for want of it asks for it', async () => {
    const sent = gateway('dex_right');
    await expect(call('AdminService/WhoAmI', {})).rejects.toMatchObject({ status: 401, code: 'api_key_missing' });
    expect(keyWanted.get()).toBe(true);
    takeKey('dex_right', false);
    expect(keyWanted.get()).toBe(false);
    await call('AdminService/WhoAmI', {});
    await stream('FileService/DownloadFile', { id: 'file-1' }, () => {});
    expect(sent).toEqual([null, 'Bearer dex_right', 'Bearer dex_right']);
    expect(keyWanted.get()).toBe(false);
  });
  it('is in memory alone, unless its owner wants it kept', () => {
    const kept = storage();
    takeKey('dex_right', false);
    expect([apiKey.get(), kept.size, keyIsStored()]).toEqual(['dex_right', 0, false]);
    takeKey('dex_right', true);
    expect([...kept.values(), keyIsStored()]).toEqual(['dex_right', true]);
    takeKey('dex_right', false);
    expect([kept.size, apiKey.get()]).toEqual([0, 'dex_right']);
  });
  it('is not asked for again when an older one is refused late', async () => {
    takeKey('dex_old', false);
    gateway('dex_right', () => takeKey('dex_right', false));
    await expect(call('AdminService/WhoAmI', {})).rejects.toMatchObject({ status: 401 });
    expect(keyWanted.get()).toBe(false);
  });
});
