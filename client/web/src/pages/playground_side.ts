import type { GenerateRequest, GenerateStreamResponse, Loose, TokenLogprob } from '@/api/types';

export interface Token {
  id: number;
  text: string;
  logprob: number;
}

// One column of the playground: who answers, and what has come.
export interface Side {
  key: number;
  source: string; // base model's name or adapter's id
  scale: number; // λ
  branch: boolean; // it has one, so that `scale` acts
}

export interface Answer {
  tokens: Token[];
  text: string; // as sent; whole characters
  state: 'idle' | 'running' | 'done' | 'failed';
  error: string;
  finish: string;
  answeredBy: string;
  version: string;
  seed: string;
  firstToken_ms: number;
  total_ms: number;
}

export const noAnswer: Answer = {
  tokens: [],
  text: '',
  state: 'idle',
  error: '',
  finish: '',
  answeredBy: '',
  version: '',
  seed: '',
  firstToken_ms: NaN,
  total_ms: NaN,
};

export interface Settings {
  mode: 'chat' | 'text';
  system: string;
  prompt: string;
  max_tokens: number;
  temperature: number;
  top_p: number;
  seed: string;
}

export interface Turn {
  role: string;
  content: string;
}

export function requestOf(side: Side, settings: Settings, history: Turn[] = []): Loose<GenerateRequest> {
  const isAdapter = side.source.startsWith('ft:');
  const messages = [
    ...(settings.system ? [{ role: 'system', content: settings.system }] : []),
    ...history,
    { role: 'user', content: settings.prompt },
  ];
  return {
    model: side.source,
    ...(settings.mode === 'chat' ? { chat: { messages } } : { prompt: settings.prompt }),
    max_tokens: settings.max_tokens,
    temperature: settings.temperature,
    top_p: settings.top_p,
    ...(settings.seed ? { seed: settings.seed } : {}),
    logprobs: 0,
    ...(isAdapter && side.branch && side.scale !== 1 ? { dex_lambda_scale: side.scale } : {}),
  };
}

// The answer with what a message of the stream brings.
export function grown(answer: Answer, message: GenerateStreamResponse): Answer {
  if (message.start) {
    return {
      ...answer,
      state: 'running',
      answeredBy: message.start.adapter?.id ?? message.start.model,
      version: message.start.adapter?.version ?? '',
      seed: message.start.seed,
    };
  }
  if (message.delta) {
    return { ...answer, text: answer.text + message.delta.text, tokens: [...answer.tokens, ...message.delta.logprobs.map(tokenOf)] };
  }
  if (message.finish) {
    const { finish_reason, timing } = message.finish;
    return {
      ...answer,
      state: 'done',
      finish: finish_reason,
      firstToken_ms: timing?.first_token_ms ?? NaN,
      total_ms: timing?.total_ms ?? NaN,
    };
  }
  return answer;
}

function tokenOf(logprob: TokenLogprob): Token {
  return { id: logprob.token_id, text: logprob.token, logprob: logprob.logprob ?? NaN };
}

// The text cut into tokens, each with the characters that it brought. Tokens that are not whole characters ("bytes:…")
// share those of the token that completes them. If the parts do not make up the text, it stays in one piece.
export function pieces(answer: Answer): { text: string; tokens: number[] }[] {
  const out: { text: string; tokens: number[] }[] = [];
  let rest = answer.text;
  let waiting: number[] = [];
  for (let i = 0; i < answer.tokens.length; i++) {
    const token = answer.tokens[i]!.text;
    if (token.startsWith('bytes:')) {
      waiting.push(i);
      continue;
    }
    const at = waiting.length > 0 ? rest.indexOf(token) : rest.startsWith(token) ? 0 : -1;
    if (at < 0 || (token === '' && waiting.length > 0)) break;
    if (at > 0) out.push({ text: rest.slice(0, at), tokens: waiting });
    waiting = [];
    if (token !== '') out.push({ text: token, tokens: [i] });
    rest = rest.slice(at + token.length);
  }
  if (rest !== '') out.push({ text: rest, tokens: waiting });
  return out;
}
