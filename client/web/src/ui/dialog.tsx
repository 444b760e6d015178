import type { ComponentChildren } from 'preact';
import { useEffect, useRef, useId } from 'preact/hooks';
import { Store, useStore } from '@/api/store';

// The browser's own modal dialog: it keeps the focus inside, and Escape closes it.
export function Dialog({ title, onClose, children }: { title: string; onClose: () => void; children: ComponentChildren }) {
  const ref = useRef<HTMLDialogElement>(null);
  const id = useId();
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    ref.current?.showModal();
    return () => before?.focus?.();
  }, []);
  return (
    <dialog ref={ref} aria-labelledby={id} onClose={onClose} onClick={(event) => event.target === ref.current && onClose()}>
      <h2 id={id}>{title}</h2>
      {children}
    </dialog>
  );
}

interface Question {
  title: string;
  body: ComponentChildren;
  confirm: string;
  danger: boolean;
  answer: (yes: boolean) => void;
}

const asked = new Store<Question | undefined>(undefined);

// Asks before something that can't be taken back.
export function ask(title: string, body: ComponentChildren, confirm: string, danger = true): Promise<boolean> {
  return new Promise((resolve) => {
    asked.set({ title, body, confirm, danger, answer: (yes) => (asked.set(undefined), resolve(yes)) });
  });
}

export function Questions() {
  const question = useStore(asked);
  if (!question) return null;
  return (
    <Dialog title={question.title} onClose={() => question.answer(false)}>
      <div>{question.body}</div>
      <div class="row end">
        <button class="button" type="button" onClick={() => question.answer(false)}>
          Keep
        </button>
        <button class={`button ${question.danger ? 'danger solid' : 'primary'}`} type="button" onClick={() => question.answer(true)}>
          {question.confirm}
        </button>
      </div>
    </Dialog>
  );
}
