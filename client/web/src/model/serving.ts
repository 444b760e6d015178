import type { Adapter, AdapterAlias, AdapterProof, Replica } from '@/generated/dex/v1/adapters';
import { count, figure, num, plural } from './format';
import type { Tone } from './states';

type Served = Pick<Adapter, 'desired' | 'pinned' | 'replicas'>;

// Where an adapter is to be.
export function wantedWords(adapter: Pick<Served, 'desired' | 'pinned'>): string {
  if (adapter.pinned) return 'in every worker’s memory, pinned there';
  return adapter.desired === 'DESIRED_DEVICE'
    ? 'in every worker’s memory'
    : 'nowhere: a first request loads it, and others may push it out';
}

// Where it is.
export function loadedWords(adapter: Pick<Served, 'replicas'>): string {
  const all = adapter.replicas.length;
  if (all === 0) return 'on no worker';
  const by = (state: Replica['state']) => adapter.replicas.filter((replica) => replica.state === state).length;
  const rest = [
    by('STATE_LOADING') > 0 && `${count(by('STATE_LOADING'))} loading`,
    by('STATE_FAILED') > 0 && `${count(by('STATE_FAILED'))} failed`,
  ].filter(Boolean);
  return [`on ${count(by('STATE_LOADED'))} of ${plural(all, 'worker')}`, ...rest].join(', ');
}

// What a worker has measured with the load: that the adapter acts, or that it changes nothing.
export function proofLook(proof: AdapterProof | undefined): { tone: Tone; icon: 'check' | 'warn' | 'dot'; label: string; words: string } {
  if (!proof || proof.verdict === 'VERDICT_UNSPECIFIED')
    return { tone: 'idle', icon: 'dot', label: 'not proven', words: 'This worker has told no proof.' };
  const tensors = `${count(proof.tensors_matched)} of ${count(proof.tensors_expected)} tensors have their place`;
  const change = `log-probabilities move by ${figure(num(proof.max_logprob_change), 3)} nats at most, over ${count(proof.probe_tokens)} tokens`;
  const words = `${tensors}; ${change}.`;
  return proof.verdict === 'VERDICT_PROVEN'
    ? { tone: 'good', icon: 'check', label: 'proven', words }
    : { tone: 'warn', icon: 'warn', label: 'changes nothing', words };
}

// Where a roll back of an alias leads; undefined: it has pointed to one adapter only.
export function targetBefore(alias: Pick<AdapterAlias, 'targets'>): string | undefined {
  return alias.targets[1]?.adapter;
}

// What is wrong with the name of an alias, as the gateway would say it (api.md §1); empty: nothing.
export function aliasFault(name: string): string {
  if (/^[a-z0-9][a-z0-9._-]{0,63}$/.test(name)) return '';
  return 'At most 64 small letters, digits, dots, dashes and underscores, a letter or digit first.';
}
