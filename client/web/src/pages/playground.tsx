import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asRpcError } from '@/api/error';
import { usePoll } from '@/api/poll';
import { call, stream } from '@/api/rpc';
import type { Adapter, Model } from '@/api/types';
import { count, figure, num, percent, plural, word } from '@/model/format';
import { differences, type Difference } from '@/model/tokens';
import { Icon } from '@/ui/icons';
import { Act, Badge, Check, Command, Empty, ErrorNote, Field, Head, Loading, Note, Select, TextInput } from '@/ui/parts';
import { to } from '@/ui/route';
import { quoted } from '@/model/recipe';
import { shortName } from './adapters';
import { grown, noAnswer, pieces, requestOf, type Answer, type Settings, type Side } from './playground_side';

const most = 4;

export function PlaygroundPage({ query }: { query: URLSearchParams }) {
  const models = usePoll('models', (signal) => call('ModelService/ListModels', {}, signal));
  const adapters = usePoll('own adapters', (signal) => call('AdapterService/ListAdapters', { page_size: 200 }, signal));
  if (!models.data || !adapters.data) {
    const error = models.error ?? adapters.error;
    return error ? <ErrorNote error={error} retry={() => (models.refresh(), adapters.refresh())} /> : <Loading what="models and adapters" />;
  }
  if (models.data.models.length === 0) return <Empty icon="chat" title="No models"><p>The operator’s list has no base model: <code>dexctl models add</code>.</p></Empty>;
  return <Playground models={models.data.models} adapters={adapters.data.adapters} wanted={query.get('adapter') ?? ''} />;
}

const hasBranch = (adapter: Adapter | undefined) => adapter !== undefined && (adapter.method === 'dex' || adapter.form !== '');

function Playground({ models, adapters, wanted }: { models: Model[]; adapters: Adapter[]; wanted: string }) {
  const nextKey = useRef(3);
  const chosen = adapters.find((adapter) => adapter.id === wanted) ?? adapters[0];
  const first: Side[] = [
    { key: 1, source: chosen?.base_model ?? models[0]!.name, scale: 1, branch: false },
    ...(chosen ? [{ key: 2, source: chosen.id, scale: 1, branch: hasBranch(chosen) }] : []),
  ];
  const [sides, setSides] = useState<Side[]>(first);
  const [answers, setAnswers] = useState<Map<number, Answer>>(new Map());
  const [settings, setSettings] = useState<Settings>({ mode: 'text', system: '', prompt: '', max_tokens: 96, temperature: 0, top_p: 1, seed: '1' });
  const [showDifferences, setShowDifferences] = useState(true);
  const control = useRef<AbortController>();
  const running = [...answers.values()].some((answer) => answer.state === 'running');
  useEffect(() => () => control.current?.abort(), []);

  const set = (change: Partial<Settings>) => setSettings((old) => ({ ...old, ...change }));
  const change = (key: number, change: Partial<Side>) => {
    setSides((old) => old.map((side) => (side.key === key ? { ...side, ...change } : side)));
    setAnswers((old) => new Map([...old].filter(([k]) => k !== key)));
  };
  const ask = async () => {
    control.current?.abort();
    const stop = (control.current = new AbortController());
    const update = (key: number, grow: (answer: Answer) => Answer) => {
      if (!stop.signal.aborted) setAnswers((old) => new Map(old).set(key, grow(old.get(key) ?? noAnswer)));
    };
    setAnswers(new Map(sides.map((side) => [side.key, { ...noAnswer, state: 'running' }])));
    await Promise.all(sides.map(async (side) => {
      try {
        await stream('InferenceService/GenerateStream', requestOf(side, settings), (messages) => update(side.key, (answer) => messages.reduce(grown, answer)), stop.signal);
        update(side.key, (answer) => (answer.state === 'done' ? answer : { ...answer, state: 'failed', error: 'The answer broke off before its end.' }));
      } catch (cause) {
        if (!stop.signal.aborted) update(side.key, (answer) => ({ ...answer, state: 'failed', error: asRpcError(cause).message }));
      }
    }));
  };
  const halt = () => {
    control.current?.abort();
    setAnswers((old) => new Map([...old].map(([key, answer]) => [key, answer.state === 'running' ? { ...answer, state: 'done', finish: 'FINISH_REASON_CANCELLED' } : answer])));
  };

  const shown = sides.map((side) => answers.get(side.key) ?? noAnswer);
  const answered = shown.length > 1 && shown.every((answer) => answer.tokens.length > 0);
  const difference = useMemo(() => (answered && showDifferences ? differences(shown.map((answer) => answer.tokens.map((token) => token.id))) : undefined), [answers, showDifferences, sides.length]);
  const finished = answered && shown.every((answer) => answer.state !== 'running');
  return (
    <div class="stack">
      <Head title="Playground"><p>The same question to a base model and to its adapters, with the same seed, so that every difference is the adapter’s doing.</p></Head>
      <form class="card stack" onSubmit={(event) => (event.preventDefault(), running ? halt() : void ask())}>
        <div class="row apart">
          <div class="chips" role="group" aria-label="Kind of input">
            <button type="button" class="chip" aria-pressed={settings.mode === 'text'} onClick={() => set({ mode: 'text' })}>Continue a text</button>
            <button type="button" class="chip" aria-pressed={settings.mode === 'chat'} onClick={() => set({ mode: 'chat' })}>Ask, by its chat template</button>
          </div>
        </div>
        {settings.mode === 'chat' && <TextInput label="System message" value={settings.system} onValue={(system) => set({ system })} placeholder="none" />}
        <Field label={settings.mode === 'chat' ? 'Question' : 'Text to go on from'}>
          {(props) => <textarea class="input" rows={4} value={settings.prompt} placeholder={settings.mode === 'chat' ? 'What is …?' : 'def read_lines(path):'}
            onInput={(event) => set({ prompt: event.currentTarget.value })} onKeyDown={(event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && (event.preventDefault(), void ask())} {...props} />}
        </Field>
        <div class="grid" style={{ gridTemplateColumns: 'repeat(auto-fill, minmax(min(100%, 108px), 1fr))' }}>
          <TextInput label="Tokens, at most" type="number" value={String(settings.max_tokens)} onValue={(value) => set({ max_tokens: Math.max(1, Math.min(2048, Number(value) || 1)) })} />
          <TextInput label="Temperature" type="number" value={String(settings.temperature)} hint="0: always the likeliest" onValue={(value) => set({ temperature: Math.max(0, Math.min(2, Number(value) || 0)) })} />
          <TextInput label="Top p" type="number" value={String(settings.top_p)} onValue={(value) => set({ top_p: Math.max(0.01, Math.min(1, Number(value) || 1)) })} />
          <TextInput label="Seed" value={settings.seed} inputMode="numeric" hint="same for all" onValue={(seed) => set({ seed: seed.replace(/\D/g, '') })} />
        </div>
        <div class="row apart">
          <Act type="submit" kind={running ? 'danger' : 'primary'} icon={running ? 'stop' : 'play'} disabled={!running && settings.prompt.trim() === ''}>{running ? 'Stop' : `Ask ${sides.length === 1 ? 'it' : sides.length === 2 ? 'both' : `all ${sides.length}`}`}</Act>
          <span class="row"><Check label="Mark differing tokens" checked={showDifferences} onChecked={setShowDifferences} />
            <button type="button" class="button" disabled={sides.length >= most} onClick={() => setSides([...sides, { key: nextKey.current++, source: chosen?.id ?? models[0]!.name, scale: chosen && hasBranch(chosen) ? 0 : 1, branch: hasBranch(chosen) }])}><Icon name="plus" size={16} />Add a side</button></span>
        </div>
      </form>
      {adapters.length === 0 && <Note>There is no adapter to compare with yet. <a href={to(['jobs', 'new'])}>Train one</a>.</Note>}
      {finished && difference && <p role="status"><DifferenceText difference={difference} answers={shown} /></p>}
      <div class="sides">
        {sides.map((side, i) => (
          <SideCard key={side.key} side={side} answer={shown[i]!} same={difference?.same[i]} first={difference?.first ?? -1} models={models} adapters={adapters} settings={settings}
            onChange={(next) => change(side.key, next)} {...(sides.length > 1 ? { onRemove: () => setSides(sides.filter((other) => other !== side)) } : {})} />
        ))}
      </div>
    </div>
  );
}

function DifferenceText({ difference, answers }: { difference: Difference; answers: Answer[] }) {
  if (difference.first < 0) return <><Badge tone="info" icon="equal">the same</Badge> All sides gave the same {plural(answers[0]!.tokens.length, 'token')}.</>;
  const differing = difference.same[1]!.filter((same) => !same).length;
  return <><Badge tone="warn" icon="warn">they differ</Badge> The answers part at token {count(difference.first + 1)}. {count(differing)} of {plural(answers[1]!.tokens.length, 'token')} on the second side are not in the first, in this order.</>;
}

function SideCard({ side, answer, same, first, models, adapters, settings, onChange, onRemove }: {
  side: Side; answer: Answer; same: boolean[] | undefined; first: number; models: Model[]; adapters: Adapter[]; settings: Settings; onChange: (change: Partial<Side>) => void; onRemove?: () => void;
}) {
  const adapted = side.source.startsWith('ft:');
  const options: [string, string][] = [
    ...models.map((model): [string, string] => [model.name, `${model.display_name || model.name} (base)`]), ...adapters.map((adapter): [string, string] => [adapter.id, `${shortName(adapter.id)} on ${adapter.base_model}`]),
  ];
  if (!options.some(([value]) => value === side.source)) options.push([side.source, side.source]);
  const name = adapted ? `adapter ${shortName(side.source)}` : `base ${side.source}`;
  return (
    <section class={`card side-card ${adapted ? 'adapted' : 'base'}`} aria-label={name}>
      <div class="row apart top keep">
        <div class="grow"><Select label={adapted ? 'Adapter' : 'Base model'} value={side.source} options={options}
          onValue={(source) => onChange({ source, scale: 1, branch: hasBranch(adapters.find((adapter) => adapter.id === source)) })} /></div>
        {onRemove && <button type="button" class="button slim quiet" onClick={onRemove}><Icon name="cross" size={16} label={`Remove ${name}`} /></button>}
      </div>
      {adapted && side.branch && (
        <Field label={`DEX strength: ${percent(side.scale)}`} hint={side.scale === 0 ? 'The subtraction is off; what else was trained stays.' : side.scale === 1 ? 'As trained.' : `λ times ${figure(side.scale)} in every layer.`}>
          {(props) => <input class="slider" type="range" min="0" max="1" step="0.05" value={side.scale} onInput={(event) => onChange({ scale: Number(event.currentTarget.value) })} {...props} />}
        </Field>
      )}
      <div class="output" aria-live="polite" aria-busy={answer.state === 'running'}>
        <Text answer={answer} same={same} first={first} />
        {answer.state === 'running' && <span class="caret" />}
        {answer.state === 'idle' && <span class="muted">The answer comes here.</span>}
      </div>
      {answer.error && <Note tone="bad" live>{answer.error}</Note>}
      {answer.state === 'done' && (
        <p class="small muted num">{plural(answer.tokens.length, 'token')}{answer.finish && `, ${word(answer.finish, 'FINISH_REASON')}`} · first after {count(answer.firstToken_ms)} ms, all after {count(answer.total_ms)} ms ·
          mean log-probability {figure(answer.tokens.reduce((sum, token) => sum + num(token.logprob), 0) / Math.max(1, answer.tokens.length), 3)} · seed {answer.seed} · answered by <code>{answer.answeredBy}{answer.version && ` @ ${answer.version}`}</code></p>
      )}
      <details class="more"><summary class="small">On the command line</summary><Command text={commandFor(side, settings)} /></details>
    </section>
  );
}

function Text({ answer, same, first }: { answer: Answer; same: boolean[] | undefined; first: number }) {
  if (answer.tokens.length === 0) return <>{answer.text}</>;
  return <>
    {pieces(answer).map(({ text, tokens }, i) => {
      const differs = same !== undefined && tokens.some((token) => same[token] === false);
      const logprob = tokens.length > 0 ? answer.tokens[tokens[0]!]!.logprob : NaN;
      const title = Number.isFinite(logprob) ? `probability ${percent(Math.exp(logprob), 1)}` : undefined;
      return differs ? <mark key={i} class={tokens.includes(first) ? 'first' : ''} title={title}>{text}</mark> : <span key={i} title={title}>{text}</span>;
    })}
  </>;
}

function commandFor(side: Side, settings: Settings): string {
  const parts = [`dexctl generate ${quoted(side.source)}`, `--prompt ${quoted(settings.prompt || '…')}`, `--max-tokens ${settings.max_tokens}`, `--temperature ${settings.temperature}`];
  if (settings.seed) parts.push(`--seed ${settings.seed}`);
  if (side.branch && side.scale !== 1) parts.push(`--lambda-scale ${side.scale}`);
  return parts.join(' ');
}
