import type { ApiKey, Caller } from '@/api/types';
import { expiry, grantable, keyLook, scopes, whoWords } from '@/model/api_keys';

const now = Date.parse('2026-11-30T12:00:00Z');

describe('API keys', () => {
  it('are given no scope that their maker lacks, in the contract’s order', () => {
    const words = (caller: Pick<Caller, 'scopes'> | undefined) => grantable(caller).map(([scope]) => scope);
    expect(words({ scopes: ['admin', 'infer', 'unheard:of'] })).toEqual(['infer', 'admin']);
    expect(words(undefined)).toEqual([]);
    expect(scopes).toHaveLength(12);
  });
  it('end after so many days, or never', () => {
    expect(expiry(30, now)).toBe('2026-12-30T12:00:00.000Z');
    expect(expiry(0, now)).toBeUndefined();
  });
  it('look expired as soon as they are, though the list is older', () => {
    const active = 'STATE_ACTIVE' satisfies ApiKey['state'];
    expect(keyLook({ state: active, expire_time: '2026-11-30T12:00:01Z' }, now).label).toBe('active');
    expect(keyLook({ state: active, expire_time: '2026-11-30T12:00:00Z' }, now).label).toBe('expired');
    expect(keyLook({ state: active }, now)).toMatchObject({ label: 'active', tone: 'good' });
    expect(keyLook({ state: 'STATE_REVOKED', expire_time: '2026-01-01T00:00:00Z' }, now).label).toBe('revoked');
    expect(keyLook({ state: 'STATE_EXPIRED' }, now).label).toBe('expired');
  });
  it('say who is here', () => {
    const caller = { tenant: 'team-a', scopes: ['infer'], key: 'key-01jd0000000000000000abcdef', operator: false };
    expect(whoWords(caller)).toBe('team-a · key …abcdef');
    expect(whoWords({ ...caller, scopes: ['admin'] })).toBe('team-a · admin · key …abcdef');
    expect(whoWords({ tenant: 'default', scopes: ['admin'], key: '', operator: true })).toBe('default · operator · no key asked for');
  });
});
