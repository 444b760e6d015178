import { ago, bytes, count, duration, figure, loss, num, percent, plural, short, signed, tail, word } from '@/model/format';

describe('numbers', () => {
  it('takes int64 as text, and NaN and Infinity as protobuf JSON writes them', () => {
    expect(num('9007199254740993')).toBe(9007199254740992);
    expect(num('NaN')).toBeNaN();
    expect(num('-Infinity')).toBe(-Infinity);
    expect(num(undefined)).toBeNaN();
  });
  it('groups whole numbers and has a dash for none', () => {
    expect(count('1118212')).toBe('1,118,212');
    expect(count(undefined)).toBe('–');
    expect(count('NaN')).toBe('–');
  });
  it('shortens to three digits, carrying into the next unit', () => {
    expect(short('134515008')).toBe('135 M');
    expect(short(999_960)).toBe('1 M');
    expect(short(999)).toBe('999');
    expect(short(17_690_000)).toBe('17.7 M');
  });
  it('tells sizes in powers of a thousand', () => {
    expect(bytes('0')).toBe('0 B');
    expect(bytes(999)).toBe('999 B');
    expect(bytes(1702887424)).toBe('1.7 GB');
    expect(bytes(999_900)).toBe('1.0 MB');
  });
  it('tells times by their two largest units', () => {
    expect(duration(0)).toBe('0 s');
    expect(duration(0.4)).toBe('under 1 s');
    expect(duration(59.6)).toBe('1 min');
    expect(duration(3600)).toBe('1 h');
    expect(duration(90_061)).toBe('1 d 1 h');
    expect(duration(-1)).toBe('–');
  });
  it('keeps small figures readable and signs visible', () => {
    expect(figure(0)).toBe('0');
    expect(figure(0.00005)).toBe('5e−5');
    expect(figure(-0.26912)).toBe('−0.2691');
    expect(figure(1_234_567)).toBe('1.23e6');
    expect(figure('Infinity')).toBe('∞');
    expect(signed(0.5)).toBe('+0.5');
    expect(signed(0)).toBe('0');
    expect(loss(2.1803)).toBe('2.1803');
    expect(loss('NaN')).toBe('–');
    expect(percent(-0.236, 1)).toBe('−23.6 %');
  });
});

describe('words', () => {
  it('takes the prefix off enum values', () => {
    expect(word('TRAIN_KVO_DEX', 'TRAIN')).toBe('kvo dex');
    expect(word('VERDICT_UNSPECIFIED', 'VERDICT')).toBe('');
    expect(word(undefined)).toBe('');
  });
  it('tells how long ago something was', () => {
    const now = Date.parse('2026-01-02T12:00:00Z');
    expect(ago('2026-01-02T11:59:55Z', now)).toBe('just now');
    expect(ago('2026-01-02T11:59:15Z', now)).toBe('45 s ago');
    expect(ago('2026-01-02T11:00:00Z', now)).toBe('1 h ago');
    expect(ago('2026-01-01T11:00:00Z', now)).toBe('yesterday');
    expect(ago('2026-01-02T13:00:00Z', now)).toBe('just now'); // a clock ahead of ours
    expect(ago('nonsense', now)).toBe('–');
  });
  it('counts things', () => {
    expect(plural(1, 'job')).toBe('1 job');
    expect(plural(10_000, 'job')).toBe('10,000 jobs');
    expect(tail('ftjob-01abcdef')).toBe('…abcdef');
  });
});
