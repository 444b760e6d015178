import { SseParser } from '@/api/sse';

const whole = (text: string) => new SseParser().push(text);

describe('SseParser', () => {
  it('reads events, ids and comments', () => {
    expect(whole(': keep-alive\n\nid: 7\nevent: metrics\ndata: {"a":1}\n\n')).toEqual([{ event: 'metrics', id: '7', data: '{"a":1}' }]);
  });
  it('joins the lines of one message and keeps their first space only once', () => {
    expect(whole('data:a\ndata:  b\n\n')).toEqual([{ event: 'message', id: '', data: 'a\n b' }]);
  });
  it('knows an end without data', () => {
    expect(whole('event: end\n\n').map((event) => event.event)).toEqual(['end']);
    expect(whole('event: other\n\n')).toEqual([]);
  });
  it('keeps an event that is not finished', () => {
    expect(whole('data: half\n')).toEqual([]);
  });
  it('gives the same events however the bytes are cut, with every kind of line end', () => {
    for (const end of ['\n', '\r\n', '\r']) {
      const text =
        ['id: 1', 'data: {"text":"ü 🙂"}', '', ': ping', '', 'event: end', 'data: {}', '', ''].join(end) + (end === '\r' ? '\n' : '');
      const expected = whole(text);
      expect(expected).toHaveLength(2);
      for (let cut = 1; cut < text.length; cut++) {
        const parser = new SseParser();
        expect([...parser.push(text.slice(0, cut)), ...parser.push(text.slice(cut))]).toEqual(expected);
      }
      const slow = new SseParser();
      expect([...text].flatMap((character) => slow.push(character))).toEqual(expected);
    }
  });
});
