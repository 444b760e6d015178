import type { Adapter, Model } from '@/api/types';
import { count, figure, num, percent, plural, word } from '@/model/format';
import { Icon } from '@/ui/icons';
import { Field, Select } from '@/ui/form';
import { Command, Note } from '@/ui/parts';
import { quoted } from '@/model/recipe';
import { shortName } from './adapters';
import { pieces, type Answer, type Settings, type Side } from './playground_side';

// Its λ can be scaled.
export const hasBranch = (adapter: Adapter | undefined) => adapter !== undefined && (adapter.method === 'dex' || adapter.form !== '');

// One side: who answers, with what strength, the answer with its differing tokens marked, and the same for a shell.
export function SideCard({
  side,
  answer,
  same,
  first,
  models,
  adapters,
  settings,
  onChange,
  onRemove,
}: {
  side: Side;
  answer: Answer;
  same: boolean[] | undefined;
  first: number;
  models: Model[];
  adapters: Adapter[];
  settings: Settings;
  onChange: (change: Partial<Side>) => void;
  onRemove?: () => void;
}) {
  const adapted = side.source.startsWith('ft:');
  const options: [string, string][] = [
    ...models.map((model): [string, string] => [model.name, `${model.display_name || model.name} (base)`]),
    ...adapters.map((adapter): [string, string] => [adapter.id, `${shortName(adapter.id)} on ${adapter.base_model}`]),
  ];
  if (!options.some(([value]) => value === side.source)) options.push([side.source, side.source]);
  const name = adapted ? `adapter ${shortName(side.source)}` : `base ${side.source}`;
  return (
    <section class={`card side-card ${adapted ? 'adapted' : 'base'}`} aria-label={name}>
      <div class="row apart top keep">
        <div class="grow">
          <Select
            label={adapted ? 'Adapter' : 'Base model'}
            value={side.source}
            options={options}
            onValue={(source) => onChange({ source, scale: 1, branch: hasBranch(adapters.find((adapter) => adapter.id === source)) })}
          />
        </div>
        {onRemove && (
          <button type="button" class="button slim quiet" onClick={onRemove}>
            <Icon name="cross" size={16} label={`Remove ${name}`} />
          </button>
        )}
      </div>
      {adapted && side.branch && (
        <Field
          label={`DEX strength: ${percent(side.scale)}`}
          hint={
            side.scale === 0
              ? 'The subtraction is off; what else was trained stays.'
              : side.scale === 1
                ? 'As trained.'
                : `λ times ${figure(side.scale)} in every layer.`
          }
        >
          {(props) => (
            <input
              class="slider"
              type="range"
              min="0"
              max="1"
              step="0.05"
              value={side.scale}
              onInput={(event) => onChange({ scale: Number(event.currentTarget.value) })}
              {...props}
            />
          )}
        </Field>
      )}
      <div class="output" aria-live="polite" aria-busy={answer.state === 'running'}>
        <Text answer={answer} same={same} first={first} />
        {answer.state === 'running' && <span class="caret" />}
        {answer.state === 'idle' && <span class="muted">The answer comes here.</span>}
      </div>
      {answer.error && (
        <Note tone="bad" live>
          {answer.error}
        </Note>
      )}
      {answer.state === 'done' && (
        <p class="small muted num">
          {plural(answer.tokens.length, 'token')}
          {answer.finish && `, ${word(answer.finish, 'FINISH_REASON')}`} · first after {count(answer.firstToken_ms)} ms, all after{' '}
          {count(answer.total_ms)} ms · mean log-probability{' '}
          {figure(answer.tokens.reduce((sum, token) => sum + num(token.logprob), 0) / Math.max(1, answer.tokens.length), 3)} · seed{' '}
          {answer.seed} · answered by{' '}
          <code>
            {answer.answeredBy}
            {answer.version && ` @ ${answer.version}`}
          </code>
        </p>
      )}
      <details class="more">
        <summary class="small">On the command line</summary>
        <Command text={commandFor(side, settings)} />
      </details>
    </section>
  );
}

function Text({ answer, same, first }: { answer: Answer; same: boolean[] | undefined; first: number }) {
  if (answer.tokens.length === 0) return <>{answer.text}</>;
  return (
    <>
      {pieces(answer).map(({ text, tokens }, i) => {
        const differs = same !== undefined && tokens.some((token) => same[token] === false);
        const logprob = tokens.length > 0 ? answer.tokens[tokens[0]!]!.logprob : NaN;
        const title = Number.isFinite(logprob) ? `probability ${percent(Math.exp(logprob), 1)}` : undefined;
        return differs ? (
          <mark key={i} class={tokens.includes(first) ? 'first' : ''} title={title}>
            {text}
          </mark>
        ) : (
          <span key={i} title={title}>
            {text}
          </span>
        );
      })}
    </>
  );
}

function commandFor(side: Side, settings: Settings): string {
  const parts = [
    `dexctl generate ${quoted(side.source)}`,
    `--prompt ${quoted(settings.prompt || '…')}`,
    `--max-tokens ${settings.max_tokens}`,
    `--temperature ${settings.temperature}`,
  ];
  if (settings.seed) parts.push(`--seed ${settings.seed}`);
  if (side.branch && side.scale !== 1) parts.push(`--lambda-scale ${side.scale}`);
  return parts.join(' ');
}
