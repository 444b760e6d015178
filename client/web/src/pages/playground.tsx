import { useEffect, useMemo, useRef, useState } from 'preact/hooks';
import { asRpcError } from '@/api/error';
import { usePoll } from '@/api/poll';
import { call, stream } from '@/api/rpc';
import type { Adapter, Model } from '@/api/types';
import { count, plural } from '@/model/format';
import { differences, type Difference } from '@/model/tokens';
import { Icon } from '@/ui/icons';
import { Check, Field, TextInput } from '@/ui/form';
import { Act, Badge, Empty, ErrorNote, Head, Loading, Note } from '@/ui/parts';
import { to } from '@/ui/route';
import { grown, noAnswer, requestOf, type Answer, type Settings, type Side } from './playground_side';
import { hasBranch, SideCard } from './playground_card';

const most = 4;

export function PlaygroundPage({ query }: { query: URLSearchParams }) {
  const models = usePoll('models', (signal) => call('ModelService/ListModels', {}, signal));
  const adapters = usePoll('own adapters', (signal) => call('AdapterService/ListAdapters', { page_size: 200 }, signal));
  if (!models.data || !adapters.data) {
    const error = models.error ?? adapters.error;
    return error ? (
      <ErrorNote error={error} retry={() => (models.refresh(), adapters.refresh())} />
    ) : (
      <Loading what="models and adapters" />
    );
  }
  if (models.data.models.length === 0)
    return (
      <Empty icon="chat" title="No models">
        <p>
          The operator’s list has no base model: <code>dexctl models add</code>.
        </p>
      </Empty>
    );
  return <Playground models={models.data.models} adapters={adapters.data.adapters} wanted={query.get('adapter') ?? ''} />;
}

function Playground({ models, adapters, wanted }: { models: Model[]; adapters: Adapter[]; wanted: string }) {
  const nextKey = useRef(3);
  const chosen = adapters.find((adapter) => adapter.id === wanted) ?? adapters[0];
  const first: Side[] = [
    { key: 1, source: chosen?.base_model ?? models[0]!.name, scale: 1, branch: false },
    ...(chosen ? [{ key: 2, source: chosen.id, scale: 1, branch: hasBranch(chosen) }] : []),
  ];
  const [sides, setSides] = useState<Side[]>(first);
  const [answers, setAnswers] = useState<Map<number, Answer>>(new Map());
  const [settings, setSettings] = useState<Settings>({
    mode: 'text',
    system: '',
    prompt: '',
    max_tokens: 96,
    temperature: 0,
    top_p: 1,
    seed: '1',
  });
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
    await Promise.all(
      sides.map(async (side) => {
        try {
          await stream(
            'InferenceService/GenerateStream',
            requestOf(side, settings),
            (messages) => update(side.key, (answer) => messages.reduce(grown, answer)),
            stop.signal,
          );
          update(side.key, (answer) =>
            answer.state === 'done' ? answer : { ...answer, state: 'failed', error: 'The answer broke off before its end.' },
          );
        } catch (cause) {
          if (!stop.signal.aborted) update(side.key, (answer) => ({ ...answer, state: 'failed', error: asRpcError(cause).message }));
        }
      }),
    );
  };
  const halt = () => {
    control.current?.abort();
    setAnswers(
      (old) =>
        new Map(
          [...old].map(([key, answer]) => [
            key,
            answer.state === 'running' ? { ...answer, state: 'done', finish: 'FINISH_REASON_CANCELLED' } : answer,
          ]),
        ),
    );
  };

  const shown = sides.map((side) => answers.get(side.key) ?? noAnswer);
  const answered = shown.length > 1 && shown.every((answer) => answer.tokens.length > 0);
  const difference = useMemo(
    () => (answered && showDifferences ? differences(shown.map((answer) => answer.tokens.map((token) => token.id))) : undefined),
    [answers, showDifferences, sides.length],
  );
  const finished = answered && shown.every((answer) => answer.state !== 'running');
  return (
    <div class="stack">
      <Head title="Playground">
        <p>The same question to a base model and to its adapters, with the same seed, so that every difference is the adapter’s doing.</p>
      </Head>
      <form class="card stack" onSubmit={(event) => (event.preventDefault(), running ? halt() : void ask())}>
        <div class="row apart">
          <div class="chips" role="group" aria-label="Kind of input">
            <button type="button" class="chip" aria-pressed={settings.mode === 'text'} onClick={() => set({ mode: 'text' })}>
              Continue a text
            </button>
            <button type="button" class="chip" aria-pressed={settings.mode === 'chat'} onClick={() => set({ mode: 'chat' })}>
              Ask, by its chat template
            </button>
          </div>
        </div>
        {settings.mode === 'chat' && (
          <TextInput label="System message" value={settings.system} onValue={(system) => set({ system })} placeholder="none" />
        )}
        <Field label={settings.mode === 'chat' ? 'Question' : 'Text to go on from'}>
          {(props) => (
            <textarea
              class="input"
              rows={4}
              value={settings.prompt}
              placeholder={settings.mode === 'chat' ? 'What is …?' : 'def read_lines(path):'}
              onInput={(event) => set({ prompt: event.currentTarget.value })}
              onKeyDown={(event) => (event.ctrlKey || event.metaKey) && event.key === 'Enter' && (event.preventDefault(), void ask())}
              {...props}
            />
          )}
        </Field>
        <div class="grid" style={{ gridTemplateColumns: 'repeat(auto-fill, minmax(min(100%, 108px), 1fr))' }}>
          <TextInput
            label="Tokens, at most"
            type="number"
            value={String(settings.max_tokens)}
            onValue={(value) => set({ max_tokens: Math.max(1, Math.min(2048, Number(value) || 1)) })}
          />
          <TextInput
            label="Temperature"
            type="number"
            value={String(settings.temperature)}
            hint="0: always the likeliest"
            onValue={(value) => set({ temperature: Math.max(0, Math.min(2, Number(value) || 0)) })}
          />
          <TextInput
            label="Top p"
            type="number"
            value={String(settings.top_p)}
            onValue={(value) => set({ top_p: Math.max(0.01, Math.min(1, Number(value) || 1)) })}
          />
          <TextInput
            label="Seed"
            value={settings.seed}
            inputMode="numeric"
            hint="same for all"
            onValue={(seed) => set({ seed: seed.replace(/\D/g, '') })}
          />
        </div>
        <div class="row apart">
          <Act
            type="submit"
            kind={running ? 'danger' : 'primary'}
            icon={running ? 'stop' : 'play'}
            disabled={!running && settings.prompt.trim() === ''}
          >
            {running ? 'Stop' : `Ask ${sides.length === 1 ? 'it' : sides.length === 2 ? 'both' : `all ${sides.length}`}`}
          </Act>
          <span class="row">
            <Check label="Mark differing tokens" checked={showDifferences} onChecked={setShowDifferences} />
            <button
              type="button"
              class="button"
              disabled={sides.length >= most}
              onClick={() =>
                setSides([
                  ...sides,
                  {
                    key: nextKey.current++,
                    source: chosen?.id ?? models[0]!.name,
                    scale: chosen && hasBranch(chosen) ? 0 : 1,
                    branch: hasBranch(chosen),
                  },
                ])
              }
            >
              <Icon name="plus" size={16} />
              Add a side
            </button>
          </span>
        </div>
      </form>
      {adapters.length === 0 && (
        <Note>
          There is no adapter to compare with yet. <a href={to(['jobs', 'new'])}>Train one</a>.
        </Note>
      )}
      {finished && difference && (
        <p role="status">
          <DifferenceText difference={difference} answers={shown} />
        </p>
      )}
      <div class="sides">
        {sides.map((side, i) => (
          <SideCard
            key={side.key}
            side={side}
            answer={shown[i]!}
            same={difference?.same[i]}
            first={difference?.first ?? -1}
            models={models}
            adapters={adapters}
            settings={settings}
            onChange={(next) => change(side.key, next)}
            {...(sides.length > 1 ? { onRemove: () => setSides(sides.filter((other) => other !== side)) } : {})}
          />
        ))}
      </div>
    </div>
  );
}

function DifferenceText({ difference, answers }: { difference: Difference; answers: Answer[] }) {
  if (difference.first < 0)
    return (
      <>
        <Badge tone="info" icon="equal">
          the same
        </Badge>{' '}
        All sides gave the same {plural(answers[0]!.tokens.length, 'token')}.
      </>
    );
  const differing = difference.same[1]!.filter((same) => !same).length;
  return (
    <>
      <Badge tone="warn" icon="warn">
        they differ
      </Badge>{' '}
      The answers part at token {count(difference.first + 1)}. {count(differing)} of {plural(answers[1]!.tokens.length, 'token')} on the
      second side are not in the first, in this order.
    </>
  );
}
