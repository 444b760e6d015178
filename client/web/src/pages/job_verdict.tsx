import type { FineTuningJob, GateResult } from '@/api/types';
import { bytes, count, figure, loss, num, percent, signed, word } from '@/model/format';
import type { IconName } from '@/ui/icons';
import { Badge, Note } from '@/ui/parts';
import { to } from '@/ui/route';

const verdicts: Record<string, { tone: 'good' | 'warn' | 'bad' | 'idle'; icon: IconName; words: string }> = {
  VERDICT_ACTIVE: { tone: 'good', icon: 'check', words: 'The subtraction that DEX has learned does a real share of the work.' },
  VERDICT_WEAK: {
    tone: 'warn',
    icon: 'warn',
    words: 'The subtraction acts, but little: most of the gain is ordinary training. More updates let it grow.',
  },
  VERDICT_INERT: {
    tone: 'bad',
    icon: 'warn',
    words: 'The subtraction does nothing to speak of: this is ordinary fine-tuning under another name.',
  },
  VERDICT_NOT_APPLICABLE: { tone: 'idle', icon: 'info', words: 'This method has no DEX branch.' },
};

export function verdictOf(verdict: string | undefined) {
  return verdicts[verdict ?? ''] ?? verdicts.VERDICT_NOT_APPLICABLE!;
}

// What came of a job, in two sentences and the figures behind them.
export function JobVerdict({ job }: { job: FineTuningJob }) {
  const before = num(job.metrics?.base_valid_loss);
  const after = num(job.metrics?.valid_loss);
  const effect = job.branch_effect;
  const look = verdictOf(effect?.verdict);
  const change = after - before;
  return (
    <section class="card stack" aria-label="Result">
      <div class="grid wide">
        {Number.isFinite(change) && (
          <div class="verdict">
            <Badge tone={change < 0 ? 'good' : 'bad'} icon={change < 0 ? 'check' : 'warn'}>
              {change < 0 ? 'better' : 'worse'}
            </Badge>
            <div>
              <div class="big num">
                {loss(before)} → {loss(after)}
              </div>
              <p class="muted">
                Loss on rows it never saw: {signed(change)} nats a token, so its perplexity {change < 0 ? 'fell' : 'rose'} by{' '}
                {percent(Math.abs(Math.expm1(change)), 1)}. Lower is better.
              </p>
            </div>
          </div>
        )}
        {effect && (
          <div class="verdict">
            <Badge tone={look.tone} icon={look.icon}>
              {word(effect.verdict, 'VERDICT')}
            </Badge>
            <div>
              <div class="big num">{effect.verdict === 'VERDICT_NOT_APPLICABLE' ? 'no branch' : percent(effect.value, 2)}</div>
              <p class="muted">
                {look.words}
                {effect.verdict !== 'VERDICT_NOT_APPLICABLE' && <> Without it the held-out loss would be {signed(effect.ce_delta)} nats.</>}
              </p>
            </div>
          </div>
        )}
      </div>
      {job.promotable === false && (
        <Note tone="warn">
          Not to be promoted: {effect?.verdict === 'VERDICT_INERT' ? 'its branch is inert.' : 'a gate below did not pass.'}
        </Note>
      )}
      {job.gate_results.length > 0 && <Gates gates={job.gate_results} />}
      <p class="row small">
        <a href={to(['adapters', job.fine_tuned_model])}>The adapter</a>
        <span class="muted">
          {count(job.metrics?.trained_parameters)} parameters trained, {count(job.metrics?.added_parameters)} of them new · peak memory{' '}
          {bytes(job.metrics?.peak_host_memory_bytes)}
        </span>
      </p>
    </section>
  );
}

export function Gates({ gates }: { gates: GateResult[] }) {
  return (
    <div class="scroll-x" tabIndex={0} role="region" aria-label="Gates, table">
      <table>
        <caption class="hidden">Gates: what the result had to show</caption>
        <thead>
          <tr>
            <th scope="col">Gate</th>
            <th scope="col">Asked</th>
            <th scope="col" class="number">
              Measured
            </th>
            <th scope="col">Verdict</th>
          </tr>
        </thead>
        <tbody>
          {gates.map((gate) => (
            <tr key={gate.gate}>
              <th scope="row">{gate.gate}</th>
              <td>{gate.condition}</td>
              <td class="number">
                {gate.not_measured || (
                  <>
                    {figure(gate.value)}
                    {gate.low !== undefined && gate.high !== undefined && (
                      <span class="muted">
                        {' '}
                        ({figure(gate.low)} to {figure(gate.high)})
                      </span>
                    )}
                  </>
                )}
              </td>
              <td>
                <Badge tone={gate.passed ? 'good' : 'bad'} icon={gate.passed ? 'check' : 'cross'}>
                  {gate.passed ? 'passed' : 'not passed'}
                </Badge>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function AdapterMarks({ promotable, verdict }: { promotable: boolean | undefined; verdict: string | undefined }) {
  const look = verdictOf(verdict);
  return (
    <>
      {verdict && verdict !== 'VERDICT_NOT_APPLICABLE' && (
        <Badge tone={look.tone} icon={look.icon}>
          branch {word(verdict, 'VERDICT')}
        </Badge>
      )}
      {promotable === false && (
        <Badge tone="warn" icon="warn">
          not promotable
        </Badge>
      )}
    </>
  );
}
