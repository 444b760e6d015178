import type { Replica } from '@/api/types';
import { aliasFault, loadedWords, proofLook, targetBefore, wantedWords } from '@/model/serving';

const replica = (state: Replica['state']): Replica => ({ worker: 'w', state, error: '', no_room: false });

describe('where an adapter is', () => {
  it('is told beside where it is to be', () => {
    expect(wantedWords({ desired: 'DESIRED_DEVICE', pinned: true })).toMatch(/pinned/);
    expect(wantedWords({ desired: 'DESIRED_DEVICE', pinned: false })).toBe('in every worker’s memory');
    expect(wantedWords({ desired: 'DESIRED_ABSENT', pinned: false })).toMatch(/^nowhere/);
    expect(loadedWords({ replicas: [] })).toBe('on no worker');
    expect(loadedWords({ replicas: [replica('STATE_LOADED')] })).toBe('on 1 of 1 worker');
    expect(loadedWords({ replicas: [replica('STATE_LOADED'), replica('STATE_LOADING'), replica('STATE_FAILED')] })).toBe(
      'on 1 of 3 workers, 1 loading, 1 failed',
    );
  });
  it('is proven, or changes nothing, by figures', () => {
    const proof = { tensors_expected: '210', tensors_matched: '210', probe_tokens: 64, max_logprob_change: 0.41271 };
    expect(proofLook({ ...proof, verdict: 'VERDICT_PROVEN' })).toMatchObject({
      label: 'proven',
      words: '210 of 210 tensors have their place; log-probabilities move by 0.413 nats at most, over 64 tokens.',
    });
    expect(proofLook({ ...proof, max_logprob_change: 0, verdict: 'VERDICT_NO_EFFECT' })).toMatchObject({
      tone: 'warn',
      label: 'changes nothing',
    });
    expect(proofLook(undefined).label).toBe('not proven');
  });
});

describe('an alias', () => {
  it('goes back to the target before, if there is one', () => {
    const target = (adapter: string) => ({ adapter, gates_overridden: false });
    expect(targetBefore({ targets: [target('b'), target('a'), target('c')] })).toBe('a');
    expect(targetBefore({ targets: [target('a')] })).toBeUndefined();
  });
  it('is named as the contract says', () => {
    for (const name of ['live', '0', 'a.b-c_d', 'x'.repeat(64)]) expect(aliasFault(name), name).toBe('');
    for (const name of ['', 'Live', '-live', 'a b', 'x'.repeat(65), 'ft:a']) expect(aliasFault(name), name).not.toBe('');
  });
});
