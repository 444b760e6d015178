import { Store } from '@/api/store';

// Pages are named behind the '#', so that any server can hand this out: #/jobs/ftjob-…?tab=heads
export interface Route {
  path: string[]; // decoded segments
  query: URLSearchParams;
}

export function parseRoute(hash: string): Route {
  const [path = '', query = ''] = hash.replace(/^#\/?/, '').split('?', 2);
  const decode = (segment: string) => {
    try {
      return decodeURIComponent(segment);
    } catch {
      return segment;
    }
  };
  return { path: path.split('/').filter(Boolean).map(decode), query: new URLSearchParams(query) };
}

export const route = new Store<Route>(parseRoute(typeof location === 'undefined' ? '' : location.hash));
if (typeof window !== 'undefined') window.addEventListener('hashchange', () => route.set(parseRoute(location.hash)));

export function to(path: string[], query: Record<string, string> = {}): string {
  const search = new URLSearchParams(Object.entries(query).filter(([, value]) => value !== '')).toString();
  return `#/${path.map(encodeURIComponent).join('/')}${search ? `?${search}` : ''}`;
}

export function go(path: string[], query: Record<string, string> = {}) {
  location.hash = to(path, query);
}

// The same page with another query, without an entry in the history.
export function setQuery(query: Record<string, string>) {
  const current = route.get();
  const merged = { ...Object.fromEntries(current.query), ...query };
  history.replaceState(null, '', to(current.path, merged));
  route.set(parseRoute(location.hash));
}
