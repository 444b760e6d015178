import type { ApiKey, Caller } from '@/generated/dex/v1/admin';
import type { Tone } from './states';

// What a key may be given, in the order of api.md §1, and what it opens.
export const scopes: [scope: string, words: string][] = [
  ['files:read', 'see and fetch data files'],
  ['files:write', 'upload and delete data files'],
  ['jobs:read', 'see jobs, events and checkpoints'],
  ['jobs:write', 'create, pause, cancel and delete jobs'],
  ['adapters:read', 'see and fetch adapters'],
  ['adapters:write', 'import, export and delete adapters'],
  ['adapters:serve', 'load, unload, pin, and move aliases'],
  ['infer', 'generate text'],
  ['eval:read', 'see evaluations'],
  ['eval:write', 'start and delete evaluations'],
  ['metrics:read', 'read metrics'],
  ['admin', 'keys, quotas, workers, and gates overridden'],
];

// Nobody gives scopes that they lack themselves.
export function grantable(caller: Pick<Caller, 'scopes'> | undefined): [scope: string, words: string][] {
  return scopes.filter(([scope]) => caller?.scopes.includes(scope));
}

export const lifetimes: [days: string, words: string][] = [
  ['30', '30 days'],
  ['90', '90 days'],
  ['365', 'a year'],
  ['0', 'never'],
];

// When a key of so many days ends, as the gateway reads times; 0 days: never.
export function expiry(days: number, now: number): string | undefined {
  return days > 0 ? new Date(now + days * 86_400_000).toISOString() : undefined;
}

// A list is some seconds old: a key may have expired since it was read.
export function keyLook(
  key: Pick<ApiKey, 'state' | 'expire_time'>,
  now: number,
): { label: string; tone: Tone; icon: 'check' | 'clock' | 'cross' } {
  if (key.state === 'STATE_REVOKED') return { label: 'revoked', tone: 'bad', icon: 'cross' };
  const over = key.expire_time !== undefined && Date.parse(key.expire_time) <= now;
  if (key.state === 'STATE_EXPIRED' || over) return { label: 'expired', tone: 'idle', icon: 'clock' };
  return { label: 'active', tone: 'good', icon: 'check' };
}

// Who the gateway takes this page for.
export function whoWords(caller: Caller): string {
  const may = caller.operator ? 'operator' : caller.scopes.includes('admin') ? 'admin' : '';
  const how = caller.key ? `key …${caller.key.slice(-6)}` : 'no key asked for';
  return [caller.tenant, may, how].filter(Boolean).join(' · ');
}
