import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

export interface Tab {
  key: string;
  label: ComponentChildren;
  content: () => ComponentChildren;
}

// Arrow keys move between tabs, as WAI-ARIA's pattern has it.
export function Tabs({
  label,
  tabs,
  current,
  onCurrent,
}: {
  label: string;
  tabs: Tab[];
  current: string;
  onCurrent: (key: string) => void;
}) {
  const id = useId();
  const index = Math.max(
    0,
    tabs.findIndex((tab) => tab.key === current),
  );
  const move = (event: KeyboardEvent) => {
    const step = event.key === 'ArrowRight' ? 1 : event.key === 'ArrowLeft' ? -1 : 0;
    if (!step) return;
    event.preventDefault();
    const next = tabs[(index + step + tabs.length) % tabs.length]!;
    onCurrent(next.key);
    document.getElementById(`${id}-${next.key}`)?.focus();
  };
  return (
    <div>
      <div class="tabs" role="tablist" aria-label={label} onKeyDown={move}>
        {tabs.map((tab, i) => (
          <button
            key={tab.key}
            type="button"
            role="tab"
            id={`${id}-${tab.key}`}
            aria-selected={i === index}
            aria-controls={`${id}-panel`}
            tabIndex={i === index ? 0 : -1}
            onClick={() => onCurrent(tab.key)}
          >
            {tab.label}
          </button>
        ))}
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${tabs[index]!.key}`}>
        {tabs[index]!.content()}
      </div>
    </div>
  );
}
