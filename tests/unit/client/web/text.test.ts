import { Precheck } from '@/model/precheck';
import { commonTokens, differences } from '@/model/tokens';
import { grown, noAnswer, pieces, requestOf, type Answer } from '@/pages/playground_side';
import type { GenerateStreamResponse } from '@/api/types';

describe('token differences', () => {
  it('are none between equal answers', () => {
    expect(
      differences([
        [1, 2, 3],
        [1, 2, 3],
      ]),
    ).toEqual({
      same: [
        [true, true, true],
        [true, true, true],
      ],
      first: -1,
    });
  });
  it('mark what is only on one side, and where they part', () => {
    const { same, first } = differences([
      [1, 2, 3, 4],
      [1, 9, 3, 4, 5],
    ]);
    expect(first).toBe(1);
    expect(same).toEqual([
      [true, false, true, true],
      [true, false, true, true, false],
    ]);
  });
  it('hold three sides against the first', () => {
    const { same } = differences([
      [1, 2],
      [1, 2],
      [1, 7],
    ]);
    expect(same).toEqual([
      [true, false],
      [true, true],
      [true, false],
    ]);
  });
  it('find a longest common subsequence, as a plain table of lengths does', () => {
    let state = 1;
    const random = (n: number) => (state = (state * 48271) % 2147483647) % n;
    for (let round = 0; round < 200; round++) {
      const a = Array.from({ length: random(14) }, () => random(4));
      const b = Array.from({ length: random(14) }, () => random(4));
      const table = Array.from({ length: a.length + 1 }, () => new Array<number>(b.length + 1).fill(0));
      for (let i = a.length - 1; i >= 0; i--)
        for (let j = b.length - 1; j >= 0; j--)
          table[i]![j] = a[i] === b[j] ? 1 + table[i + 1]![j + 1]! : Math.max(table[i + 1]![j]!, table[i]![j + 1]!);
      const pairs = commonTokens(a, b);
      expect(pairs.length).toBe(table[0]![0]);
      for (const [i, j] of pairs) expect(a[i]).toBe(b[j]);
      for (let k = 1; k < pairs.length; k++) expect(pairs[k]![0] > pairs[k - 1]![0] && pairs[k]![1] > pairs[k - 1]![1]).toBe(true);
    }
  });
});

describe('a side of the playground', () => {
  const settings = {
    mode: 'text' as const,
    system: '',
    prompt: 'Hi',
    max_tokens: 8,
    temperature: 0,
    top_p: 1,
    seed: '5',
  };
  const delta = (text: string, ...tokens: [number, string][]) =>
    ({
      delta: {
        text,
        token_ids: [],
        logprobs: tokens.map(([token_id, token]) => ({
          token_id,
          token,
          logprob: -1,
          top: [],
        })),
      },
    }) as unknown as GenerateStreamResponse;
  it('asks for λ only where it acts', () => {
    expect(requestOf({ key: 1, source: 'base', scale: 0, branch: false }, settings)).not.toHaveProperty('dex_lambda_scale');
    expect(requestOf({ key: 1, source: 'ft:a', scale: 0, branch: true }, settings)).toMatchObject({
      model: 'ft:a',
      dex_lambda_scale: 0,
      seed: '5',
      prompt: 'Hi',
    });
    expect(requestOf({ key: 1, source: 'ft:a', scale: 1, branch: true }, settings)).not.toHaveProperty('dex_lambda_scale');
  });
  it('asks by the chat template', () => {
    expect(
      requestOf({ key: 1, source: 'base', scale: 1, branch: false }, { ...settings, mode: 'chat', system: 'Be brief.' }),
    ).toMatchObject({
      chat: {
        messages: [
          { role: 'system', content: 'Be brief.' },
          { role: 'user', content: 'Hi' },
        ],
      },
    });
  });
  it('cuts the text into the tokens that made it, whole characters at least', () => {
    const answer = [delta('a', [1, 'a']), delta('', [2, 'bytes:\\xf0']), delta('🙂 b', [3, 'bytes:\\x9f'], [4, ' b'])].reduce<Answer>(
      grown,
      noAnswer,
    );
    expect(answer.text).toBe('a🙂 b');
    expect(pieces(answer)).toEqual([
      { text: 'a', tokens: [0] },
      { text: '🙂', tokens: [1, 2] },
      { text: ' b', tokens: [3] },
    ]);
  });
  it('loses no text where tokens and text don’t agree', () => {
    const answer = [delta('abc', [1, 'x'])].reduce<Answer>(grown, noAnswer);
    expect(
      pieces(answer)
        .map((piece) => piece.text)
        .join(''),
    ).toBe('abc');
  });
});

describe('the first look at a file', () => {
  const look = (text: string, cut = text.length) => {
    const check = new Precheck();
    for (let i = 0; i < text.length; i += cut) check.add(text.slice(i, i + cut));
    check.end();
    return check;
  };
  const codes = (text: string) => look(text).findings.map((finding) => `${finding.line} ${finding.code}`);
  it('finds every fault in one pass, by line', () => {
    const text = [
      '{"text": "good"}',
      '',
      '{"text": "bad"',
      '[1]',
      '{"messages": [{"role": "human", "content": "x"}]}',
      '{"messages": [{"role": "user", "content": "x"}]}',
      '{"prompt": "p"}',
      '{"prompt": "p", "completion": ""}',
      '{"other": 1}',
      '{"input_ids": [1, 2]}',
    ].join('\n');
    expect(codes(text)).toEqual([
      '2 blank_line',
      '3 invalid_json',
      '4 not_an_object',
      '5 unknown_role',
      '6 no_assistant_message',
      '7 missing_key',
      '8 empty_content',
      '9 missing_key',
    ]);
    expect(look(text).rows).toBe(2);
    expect(look(text).findings[3]!.hint).toBe('did you mean "user"?');
  });
  it('says the same however the bytes come', () => {
    const text = '\uFEFF{"text": "a"}\r\n{"text": 1}\r\n{"text": "b"}';
    for (const cut of [1, 2, 3, 7]) expect(look(text, cut).findings).toEqual(look(text).findings);
    expect(codes(text)).toEqual(['0 bom_removed', '2 wrong_type']);
  });
  it('names a file that is no JSON Lines', () => {
    expect(codes('[{"text": "a"}]')).toEqual(['0 json_array_file']);
    expect(codes('PK\u0003\u0004')).toEqual(['0 compressed_file']);
    expect(codes('{\u0000"\u0000')).toEqual(['0 encoding_utf16']);
    expect(codes('')).toEqual(['0 empty_file']);
  });
  it('counts all and keeps some', () => {
    const check = new Precheck(10);
    check.add('x\n'.repeat(1000));
    check.end();
    expect(check.findings).toHaveLength(10);
    expect(check.counts.get('invalid_json')).toBe(1000);
  });
});
