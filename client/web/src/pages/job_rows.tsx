import { useMemo } from 'preact/hooks';
import type { FineTuningEvent, FineTuningJob, WorstRows } from '@/api/types';
import { count, loss, signed } from '@/model/format';
import { rowLosses, type GroupRow } from '@/model/row_losses';
import { Empty } from '@/ui/parts';
import { to } from '@/ui/route';

const kinds: Record<string, string> = { tag: 'By tag', language: 'By language', length: 'By length, in tokens at most' };

// Which held-out rows make the loss what it is.
export function JobRows({ events, job }: { events: FineTuningEvent[]; job: FineTuningJob }) {
  const { step, groups, worst } = useMemo(() => rowLosses(events), [events, events.length]);
  if (groups.length === 0 && !worst) {
    return (
      <div class="card">
        <Empty icon="table" title="Nothing measured yet">
          <p>With each measurement of the held-out loss comes the loss of its tags, languages and lengths, and the rows that are worst.</p>
        </Empty>
      </div>
    );
  }
  return (
    <div class="stack">
      {[...new Set(groups.map((group) => group.by))].map((by) => (
        <Groups key={by} by={by} step={step} groups={groups.filter((group) => group.by === by)} />
      ))}
      {worst && <Worst worst={worst} job={job} />}
    </div>
  );
}

function Groups({ by, step, groups }: { by: string; step: number; groups: GroupRow[] }) {
  const title = `${kinds[by] ?? `By ${by}`}, after update ${count(step)}`;
  return (
    <section class="card stack tight" aria-label={title}>
      <h2>{title}</h2>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={`${title}, table`}>
        <table>
          <caption class="hidden">{title}: held-out loss, the highest first</caption>
          <thead>
            <tr>
              <th scope="col">Rows of</th>
              <th scope="col" class="number">
                Base
              </th>
              <th scope="col" class="number">
                Loss
              </th>
              <th scope="col" class="number">
                Change
              </th>
              <th scope="col" class="number">
                Rows
              </th>
              <th scope="col" class="number">
                Tokens
              </th>
            </tr>
          </thead>
          <tbody>
            {groups.map((group) => (
              <tr key={group.name}>
                <th scope="row">{group.name}</th>
                <td class="number">{loss(group.base)}</td>
                <td class="number">{loss(group.loss)}</td>
                <td class="number">{signed(group.change)}</td>
                <td class="number">{count(group.rows)}</td>
                <td class="number">{count(group.tokens)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}

function Worst({ worst, job }: { worst: WorstRows; job: FineTuningJob }) {
  const file = worst.file === 'validation_file' ? job.validation_file : job.training_file;
  const title = `Worst rows after update ${count(worst.step)}`;
  return (
    <section class="card stack tight" aria-label={title}>
      <h2>{title}</h2>
      <p class="muted">
        Lines of {file ? <a href={to(['files', file])}>its {worst.file.replace(/_/g, ' ')}</a> : worst.file.replace(/_/g, ' ')} that it
        still finds hardest. Often they are wrong, cut off, or in a language that the others are not in.
      </p>
      <div class="scroll-x" tabIndex={0} role="region" aria-label={`${title}, table`}>
        <table>
          <caption class="hidden">{title}, the worst first</caption>
          <thead>
            <tr>
              <th scope="col" class="number">
                Line
              </th>
              <th scope="col" class="number">
                Loss
              </th>
              <th scope="col" class="number">
                Tokens
              </th>
              <th scope="col">Tag</th>
              <th scope="col">Language</th>
            </tr>
          </thead>
          <tbody>
            {worst.rows.map((row, i) => (
              <tr key={i}>
                <th scope="row" class="number">
                  {count(row.line)}
                </th>
                <td class="number">{loss(row.loss)}</td>
                <td class="number">{count(row.tokens)}</td>
                <td>{row.tag || '–'}</td>
                <td>{row.language || '–'}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </section>
  );
}
