import type { FineTuningEvent, WorstRows } from '@/generated/dex/v1/events';
import { num } from './format';

export interface GroupRow {
  by: string; // tag, language, length
  name: string;
  base: number; // nats a supervised token before the first update; NaN: not measured
  loss: number;
  change: number;
  rows: number;
  tokens: number;
}

export interface RowLosses {
  step: number; // updates before the last measurement of groups
  groups: GroupRow[]; // by kind in the order of the event, the highest loss first
  worst: WorstRows | undefined; // of the last measurement
}

// What the events say of the rows behind the held-out loss: the last word, beside the base's.
export function rowLosses(events: Pick<FineTuningEvent, 'group_loss' | 'worst_rows'>[]): RowLosses {
  const measured = events.flatMap((event) => (event.group_loss ? [event.group_loss] : []));
  const last = measured.at(-1);
  const key = (group: { by: string; name: string }) => `${group.by} ${group.name}`;
  const base = new Map(
    measured.filter(({ step }) => step === 0).flatMap(({ groups }) => groups.map((group) => [key(group), num(group.loss)])),
  );
  const kinds = [...new Set(last?.groups.map((group) => group.by))];
  const groups = (last?.groups ?? []).map((group) => {
    const before = base.get(key(group)) ?? NaN;
    const loss = num(group.loss);
    return { by: group.by, name: group.name, base: before, loss, change: loss - before, rows: num(group.rows), tokens: num(group.tokens) };
  });
  groups.sort((a, b) => kinds.indexOf(a.by) - kinds.indexOf(b.by) || b.loss - a.loss);
  return { step: last?.step ?? 0, groups, worst: events.findLast((event) => event.worst_rows)?.worst_rows };
}

// The mean of what is a number: layers without a selected head have none. NaN where none has.
export function meanOf(values: (number | string)[]): number {
  const finite = values.map(num).filter(Number.isFinite);
  return finite.reduce((sum, value) => sum + value, 0) / finite.length;
}
