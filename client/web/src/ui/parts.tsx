import type { ComponentChildren } from 'preact';
import { useEffect, useState } from 'preact/hooks';
import type { RpcError } from '@/api/error';
import { ago, clock } from '@/model/format';
import { lookOf, whoActs, type Tone } from '@/model/states';
import { Icon, type IconName } from './icons';
import { say } from './messages';

export function Badge({ tone = 'idle', icon, children }: { tone?: Tone; icon?: IconName; children: ComponentChildren }) {
  return (
    <span class={`badge ${tone}`}>
      {icon && <Icon name={icon} />}
      {children}
    </span>
  );
}

export function StateBadge({ state }: { state: string }) {
  const look = lookOf(state);
  return (
    <Badge tone={look.tone} icon={look.mark}>
      {look.label}
    </Badge>
  );
}

const noteIcons = { info: 'info', warn: 'warn', bad: 'warn', good: 'check' } as const;

export function Note({ tone = 'info', children, live }: { tone?: keyof typeof noteIcons; children: ComponentChildren; live?: boolean }) {
  return (
    <div class={`note ${tone}`} {...(live ? { role: tone === 'bad' ? 'alert' : 'status' } : {})}>
      <Icon name={noteIcons[tone]} />
      <div class="grow">{children}</div>
    </div>
  );
}

// What went wrong, who can do something about it, and the id to quote.
export function ErrorNote({ error, retry }: { error: RpcError | undefined; retry?: (() => void) | undefined }) {
  if (!error) return null;
  return (
    <Note tone="bad" live>
      <p>
        <strong>{error.message}</strong>
      </p>
      <p class="small muted">
        {error.status === 0 ? '' : whoActs(error.category)}
        {error.code && (
          <>
            {' '}
            <code>{error.code}</code>
          </>
        )}
        {error.requestId && (
          <>
            {' '}
            · request <code>{error.requestId}</code>
          </>
        )}
      </p>
      {retry && (
        <p>
          <button class="button slim" type="button" onClick={retry}>
            <Icon name="retry" size={15} />
            Try again
          </button>
        </p>
      )}
    </Note>
  );
}

// Data that could not be renewed says so, and since when.
export function Stale({ error, since }: { error?: RpcError | undefined; since: number }) {
  useTick(error && since ? 5000 : 0);
  if (!error || !since) return null;
  return (
    <span class="stale" role="status" title={error.message}>
      <Icon name="warn" size={16} />
      Not renewed since {clock(since)} ({ago(since)}): {error.status === 0 ? 'the gateway is away' : error.message} Trying again.
    </span>
  );
}

// Renders again every so often, for texts such as "3 min ago". 0: never.
export function useTick(every_ms: number) {
  const [, set] = useState(0);
  useEffect(() => {
    if (!every_ms) return;
    const timer = setInterval(() => set((n) => n + 1), every_ms);
    return () => clearInterval(timer);
  }, [every_ms]);
}

export function Ago({ time }: { time: string | undefined }) {
  useTick(30_000);
  if (!time) return <>–</>;
  return (
    <time dateTime={time} title={new Date(time).toLocaleString('en-GB')}>
      {ago(time)}
    </time>
  );
}

export function Bar({ percentage, label, slim, tone }: { percentage: number; label: string; slim?: boolean; tone?: 'good' }) {
  const value = Number.isFinite(percentage) ? Math.max(0, Math.min(100, percentage)) : 0;
  return (
    <div
      class={`bar${slim ? ' slim' : ''}${tone ? ` ${tone}` : ''}`}
      role="progressbar"
      aria-label={label}
      aria-valuemin={0}
      aria-valuemax={100}
      aria-valuenow={Math.round(value)}
    >
      <i style={{ width: `${value}%` }} />
    </div>
  );
}

export function Figures({ items }: { items: [string, ComponentChildren, ComponentChildren?][] }) {
  return (
    <dl class="figures">
      {items.map(([label, value, more]) => (
        <div key={label}>
          <dt>{label}</dt>
          <dd>
            {value}
            {more && (
              <>
                {' '}
                <small>{more}</small>
              </>
            )}
          </dd>
        </div>
      ))}
    </dl>
  );
}

export function Facts({ items }: { items: [string, ComponentChildren][] }) {
  return (
    <dl class="facts">
      {items.map(([label, value]) => (
        <>
          <dt>{label}</dt>
          <dd>{value}</dd>
        </>
      ))}
    </dl>
  );
}

export function Copy({ text, label = 'Copy' }: { text: string; label?: string }) {
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      say('Copied.');
    } catch {
      say('The browser does not let this page copy: select the text and copy it by hand.', 'warn');
    }
  };
  return (
    <button class="button slim quiet" type="button" onClick={copy} title={label}>
      <Icon name="copy" size={16} />
      <span class="hidden">{label}</span>
    </button>
  );
}

export function Command({ text }: { text: string }) {
  return (
    <div class="command">
      <code>{text}</code>
      <Copy text={text} label="Copy the command" />
    </div>
  );
}

export function Id({ id }: { id: string }) {
  return (
    <span class="wrap-any">
      <code>{id}</code>
      <Copy text={id} label={`Copy ${id}`} />
    </span>
  );
}

export function Empty({ icon, title, children }: { icon: IconName; title: string; children: ComponentChildren }) {
  return (
    <div class="empty">
      <Icon name={icon} size={38} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

export function Loading({ what }: { what: string }) {
  return (
    <p class="muted row" role="status">
      <Icon name="spin" class="spin" /> Loading {what} …
    </p>
  );
}

export function Head({
  title,
  children,
  actions,
}: {
  title: ComponentChildren;
  children?: ComponentChildren;
  actions?: ComponentChildren;
}) {
  return (
    <div class="page-head">
      <div class="words">
        <h1>{title}</h1>
        {children}
      </div>
      {actions && <div class="row">{actions}</div>}
    </div>
  );
}

// Bytes go nowhere while `busy`: a second press does nothing.
export function Act({
  icon,
  busy,
  children,
  kind = '',
  onClick,
  disabled,
  title,
  type = 'button',
}: {
  icon?: IconName;
  busy?: boolean;
  children: ComponentChildren;
  kind?: string;
  onClick?: () => void;
  disabled?: boolean;
  title?: string;
  type?: 'button' | 'submit';
}) {
  const off = busy || disabled;
  return (
    <button
      class={`button ${kind}`}
      type={type}
      aria-disabled={off ? 'true' : undefined}
      aria-busy={busy ? 'true' : undefined}
      title={title}
      onClick={(event) => {
        if (off) event.preventDefault();
        else onClick?.();
      }}
    >
      {busy ? <Icon name="spin" class="spin" size={17} /> : icon && <Icon name={icon} size={17} />}
      {children}
    </button>
  );
}
