import { asRpcError } from '@/api/error';
import { Store, useStore } from '@/api/store';
import { Icon } from './icons';

interface Message {
  id: number;
  text: string;
  tone: 'good' | 'warn' | 'bad';
}

const messages = new Store<Message[]>([]);
let next = 1;

// A sentence at the page's corner, read out politely. Faults stay until they are put away.
export function say(text: string, tone: Message['tone'] = 'good') {
  const message = { id: next++, text, tone };
  messages.set([...messages.get().slice(-3), message]);
  if (tone === 'good') setTimeout(() => putAway(message.id), 6000);
}

export function sayError(cause: unknown) {
  if (cause instanceof DOMException && cause.name === 'AbortError') return;
  say(asRpcError(cause).message, 'bad');
}

const putAway = (id: number) => messages.set(messages.get().filter((message) => message.id !== id));

export function Messages() {
  const list = useStore(messages);
  return (
    <div class="messages" role="status" aria-live="polite" aria-label="Messages">
      {list.map((message) => (
        <div class={`note ${message.tone}`} key={message.id}>
          <Icon name={message.tone === 'good' ? 'check' : 'warn'} />
          <div class="grow">{message.text}</div>
          <button class="button slim quiet" type="button" onClick={() => putAway(message.id)}>
            <Icon name="cross" size={15} label="Put away" />
          </button>
        </div>
      ))}
    </div>
  );
}
