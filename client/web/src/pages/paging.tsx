import { useEffect, useMemo, useState } from 'preact/hooks';
import { sayError } from '@/ui/messages';
import { Act } from '@/ui/parts';

export interface Page<T> {
  items: T[];
  next: string; // token; empty: the end
}
export interface Pages<T> {
  items: T[];
  more: boolean;
  busy: boolean;
  load: () => void;
}

// A first page that is renewed, and further ones that the user asks for.
export function usePages<T>(first: Page<T> | undefined, ask: (token: string) => Promise<Page<T>>, key: (item: T) => string): Pages<T> {
  const [later, setLater] = useState<T[]>([]);
  const [next, setNext] = useState<string | undefined>(undefined);
  const [busy, setBusy] = useState(false);
  useEffect(() => {
    if (next === undefined && first) setNext(first.next);
  }, [first]);
  const items = useMemo(() => {
    const seen = new Map<string, T>();
    for (const item of [...(first?.items ?? []), ...later]) if (!seen.has(key(item))) seen.set(key(item), item);
    return [...seen.values()];
  }, [first, later]);
  const load = () => {
    if (!next || busy) return;
    setBusy(true);
    ask(next)
      .then((page) => {
        setLater((old) => [...old, ...page.items]);
        setNext(page.next);
      })
      .catch(sayError)
      .finally(() => setBusy(false));
  };
  return { items, more: (next ?? '') !== '', busy, load };
}

export function MorePages<T>({ pages }: { pages: Pages<T> }) {
  if (!pages.more) return null;
  return (
    <p style={{ padding: '12px 16px' }}>
      <Act busy={pages.busy} onClick={pages.load}>
        Show more
      </Act>
    </p>
  );
}
