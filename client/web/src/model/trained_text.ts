import type { PreviewedToken } from '@/generated/dex/v1/files';

// Text of a previewed row in pieces that are trained or only read.
export interface Piece {
  text: string;
  trained: boolean;
}

const whole = new TextEncoder();

// The bytes of a token; one that is no whole UTF-8 is called bytes:\xe2\x82.
function bytesOf(text: string): Uint8Array {
  if (!/^bytes:(\\x[0-9a-f]{2})+$/.test(text)) return whole.encode(text);
  return Uint8Array.from(text.slice('bytes:'.length).split('\\x').slice(1), (hex) => parseInt(hex, 16));
}

// Characters may lie across tokens: each stands with the token that ends it.
export function trainedText(tokens: Pick<PreviewedToken, 'text' | 'weight'>[]): Piece[] {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true });
  const pieces: Piece[] = [];
  const add = (text: string, trained: boolean) => {
    const last = pieces.at(-1);
    if (!text) return;
    if (last && last.trained === trained) last.text += text;
    else pieces.push({ text, trained });
  };
  for (const token of tokens) add(decoder.decode(bytesOf(token.text), { stream: true }), token.weight > 0);
  add(decoder.decode(), (tokens.at(-1)?.weight ?? 0) > 0);
  return pieces;
}
