import type { ComponentChildren } from 'preact';
import { useId } from 'preact/hooks';

export function Field({
  label,
  hint,
  fault,
  children,
}: {
  label: string;
  hint?: ComponentChildren;
  fault?: string | undefined;
  children: (props: { id: string; 'aria-describedby'?: string; 'aria-invalid'?: boolean }) => ComponentChildren;
}) {
  const id = useId();
  const described = fault || hint ? `${id}-more` : undefined;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children({ id, ...(described ? { 'aria-describedby': described } : {}), ...(fault ? { 'aria-invalid': true } : {}) })}
      {fault ? (
        <span class="fault" id={described}>
          {fault}
        </span>
      ) : hint ? (
        <span class="hint" id={described}>
          {hint}
        </span>
      ) : null}
    </div>
  );
}

export function TextInput({
  label,
  hint,
  fault,
  value,
  onValue,
  ...more
}: {
  label: string;
  hint?: ComponentChildren;
  fault?: string | undefined;
  value: string;
  onValue: (value: string) => void;
  placeholder?: string;
  type?: string;
  inputMode?: 'numeric' | 'decimal' | 'text';
  autocomplete?: string;
}) {
  return (
    <Field label={label} hint={hint} fault={fault}>
      {(props) => (
        <input
          class="input"
          value={value}
          onInput={(event) => onValue(event.currentTarget.value)}
          autocomplete="off"
          {...more}
          {...props}
        />
      )}
    </Field>
  );
}

export function Select({
  label,
  hint,
  value,
  onValue,
  options,
}: {
  label: string;
  hint?: ComponentChildren;
  value: string;
  onValue: (value: string) => void;
  options: [value: string, text: string][];
}) {
  return (
    <Field label={label} hint={hint}>
      {(props) => (
        <select class="input" value={value} onChange={(event) => onValue(event.currentTarget.value)} {...props}>
          {options.map(([key, text]) => (
            <option key={key} value={key}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

export function Check({
  label,
  hint,
  checked,
  onChecked,
}: {
  label: ComponentChildren;
  hint?: ComponentChildren;
  checked: boolean;
  onChecked: (checked: boolean) => void;
}) {
  return (
    <label class="check">
      <input type="checkbox" checked={checked} onChange={(event) => onChecked(event.currentTarget.checked)} />
      <span>
        {label}
        {hint && (
          <span class="muted small">
            <br />
            {hint}
          </span>
        )}
      </span>
    </label>
  );
}

export interface Choice {
  value: string;
  title: ComponentChildren;
  more?: ComponentChildren;
  disabled?: boolean;
}

export function Choices({
  legend,
  value,
  onValue,
  choices,
}: {
  legend: string;
  value: string;
  onValue: (value: string) => void;
  choices: Choice[];
}) {
  const name = useId();
  return (
    <fieldset class="choices">
      <legend class="hidden">{legend}</legend>
      {choices.map((choice) => (
        <label class="choice" key={choice.value}>
          <input
            type="radio"
            name={name}
            value={choice.value}
            checked={value === choice.value}
            disabled={choice.disabled ?? false}
            onChange={() => onValue(choice.value)}
          />
          <span class="title">
            <span class="dot" />
            {choice.title}
          </span>
          {choice.more}
        </label>
      ))}
    </fieldset>
  );
}
