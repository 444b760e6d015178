import { trainedText } from '@/model/trained_text';

const token = (text: string, weight: number) => ({ text, weight });

describe('the text of a previewed row', () => {
  it('is in pieces that are trained or only read', () => {
    expect(trainedText([token('user: ', 0), token('hi', 0), token('hel', 1), token('lo', 0.5), token('\n', 0)])).toEqual([
      { text: 'user: hi', trained: false },
      { text: 'hello', trained: true },
      { text: '\n', trained: false },
    ]);
  });
  it('puts characters together that lie across tokens', () => {
    const pieces = trainedText([token('bytes:\\xf0\\x9f', 0), token('bytes:\\x98', 0), token('bytes:\\x80', 1), token('!', 1)]);
    expect(pieces).toEqual([{ text: '😀!', trained: true }]);
  });
  it('shows broken ones as such, and takes text for text', () => {
    expect(trainedText([token('bytes:\\xc3', 1), token('a', 1), token('bytes:\\x', 1), token('\ufeff', 1)])).toEqual([
      { text: '\ufffda' + 'bytes:\\x' + '\ufeff', trained: true },
    ]);
    expect(trainedText([token('bytes:\\xc3', 1)])).toEqual([{ text: '\ufffd', trained: true }]);
    expect(trainedText([])).toEqual([]);
  });
});
