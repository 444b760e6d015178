import { useEffect, useRef } from 'preact/hooks';
import { Dialog } from './dialog';
import { go } from './route';

const places: Record<string, string[]> = {
  h: [],
  j: ['jobs'],
  n: ['jobs', 'new'],
  d: ['files'],
  a: ['adapters'],
  p: ['playground'],
  e: ['evaluations'],
  w: ['platform'],
  k: ['keys'],
};

const typing = (target: EventTarget | null) =>
  target instanceof HTMLElement &&
  (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName)) &&
  !(target instanceof HTMLInputElement && /^(checkbox|radio|button|range)$/.test(target.type));

// True for a key press that is a command of the page, not text, and not another program's.
export function isCommand(event: KeyboardEvent): boolean {
  return (
    !event.defaultPrevented &&
    !event.ctrlKey &&
    !event.metaKey &&
    !event.altKey &&
    !typing(event.target) &&
    !document.querySelector('dialog[open]')
  );
}

// Keys that work on every page: ? help, / search, g and a letter for a page.
export function useKeys(openHelp: () => void) {
  const pending = useRef(0);
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (!isCommand(event)) return;
      if (event.key === '?') return (event.preventDefault(), openHelp());
      if (event.key === '/') {
        const box = document.querySelector<HTMLInputElement>('input[type=search]');
        if (box) (event.preventDefault(), box.focus(), box.select());
        return;
      }
      if (event.key === 'g') {
        pending.current = Date.now();
        return;
      }
      const place = places[event.key];
      if (place && Date.now() - pending.current < 1500) {
        event.preventDefault();
        event.stopImmediatePropagation();
        go(place);
      }
      pending.current = 0;
    };
    window.addEventListener('keydown', press, true);
    return () => window.removeEventListener('keydown', press, true);
  }, [openHelp]);
}

const keys: [string[], string][] = [
  [['?'], 'this help'],
  [['/'], 'search'],
  [['g', 'j'], 'jobs'],
  [['g', 'n'], 'new job'],
  [['g', 'd'], 'data files'],
  [['g', 'a'], 'adapters'],
  [['g', 'p'], 'playground'],
  [['g', 'e'], 'evaluations'],
  [['g', 'w'], 'platform: workers and queue'],
  [['g', 'k'], 'API keys'],
  [['g', 'h'], 'start'],
  [['j'], 'next row'],
  [['k'], 'row before'],
  [['Enter'], 'open the row'],
  [['x'], 'tick the row'],
  [['c'], 'cancel the job (asks first)'],
  [['Esc'], 'close a dialog'],
];

export function HelpDialog({ onClose }: { onClose: () => void }) {
  return (
    <Dialog title="Help and keys" onClose={onClose}>
      <div class="stack">
        <p>
          DEX adapts a language model to your data and subtracts, in chosen attention heads, what the model has learned to be noise. You
          bring rows of text; the platform trains, checks and serves an <strong>adapter</strong>. <strong class="nowrap">λ (lambda)</strong>{' '}
          is how strongly the subtraction acts; the <strong>branch ratio</strong> is how much of the heads’ output it changes.
        </p>
        <table>
          <tbody>
            {keys.map(([press, what]) => (
              <tr key={what}>
                <th scope="row" class="nowrap">
                  {press.map((key) => (
                    <>
                      <kbd key={key}>{key}</kbd>{' '}
                    </>
                  ))}
                </th>
                <td>{what}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      <div class="row end">
        <button class="button primary" type="button" onClick={onClose}>
          Close
        </button>
      </div>
    </Dialog>
  );
}
