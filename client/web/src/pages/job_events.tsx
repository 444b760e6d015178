import { useMemo, useState } from 'preact/hooks';
import { usePoll } from '@/api/poll';
import { call } from '@/api/rpc';
import type { Checkpoint, FineTuningEvent, FineTuningJob } from '@/api/types';
import { bytes, clock, count, figure, loss, num, percent, word } from '@/model/format';
import { meanOf } from '@/model/row_losses';
import { Icon } from '@/ui/icons';
import { Badge, Empty } from '@/ui/parts';

const atOnce = 100;

export function levelOf(event: FineTuningEvent): 'info' | 'warn' | 'bad' {
  return event.level === 'LEVEL_ERROR' ? 'bad' : event.level === 'LEVEL_WARN' ? 'warn' : 'info';
}

// Newest first; metrics are in the curves.
export function JobEvents({ events }: { events: FineTuningEvent[] }) {
  const [onlyWarnings, setOnlyWarnings] = useState(false);
  const [most, setMost] = useState(atOnce);
  const shown = useMemo(
    () => events.filter((event) => !onlyWarnings || levelOf(event) !== 'info').reverse(),
    [events, events.length, onlyWarnings],
  );
  return (
    <section class="card" aria-label="Events">
      <div class="row apart">
        <h2>Events</h2>
        <button type="button" class="chip" aria-pressed={onlyWarnings} onClick={() => setOnlyWarnings(!onlyWarnings)}>
          <Icon name="warn" size={15} />
          Warnings and errors only
        </button>
      </div>
      {shown.length === 0 ? (
        <p class="muted">{onlyWarnings ? 'No warnings.' : 'Nothing has happened yet.'}</p>
      ) : (
        <ol class="log">
          {shown.slice(0, most).map((event) => (
            <EventLine key={event.id} event={event} />
          ))}
        </ol>
      )}
      {shown.length > most && (
        <button type="button" class="button" onClick={() => setMost(most + 500)}>
          Show more of {count(shown.length)}
        </button>
      )}
    </section>
  );
}

function EventLine({ event }: { event: FineTuningEvent }) {
  const level = levelOf(event);
  const advice = event.advice;
  return (
    <li>
      <time dateTime={event.create_time}>{clock(event.create_time)}</time>
      <span class={level}>
        <Icon name={level === 'info' ? 'dot' : level === 'warn' ? 'warn' : 'cross'} size={16} label={word(event.level, 'LEVEL')} />
      </span>
      <div class="what">
        {event.message || event.type}
        {advice?.suggestion && !event.message.includes(advice.suggestion) && <p class="small muted">{advice.suggestion}</p>}
        <span class="small muted">
          {' '}
          <span class="tag">{event.type.replace(/_/g, ' ')}</span>
          {event.attempt > 1 && ` attempt ${event.attempt}`}
        </span>
      </div>
    </li>
  );
}

async function everyCheckpoint(job: string, signal: AbortSignal): Promise<Checkpoint[]> {
  const all: Checkpoint[] = [];
  for (;;) {
    const after = all.at(-1)?.id ?? '';
    const page = await call('FineTuningService/ListFineTuningCheckpoints', { job, page_size: 1000, after }, signal);
    all.push(...page.checkpoints);
    if (!page.has_more || page.checkpoints.length === 0) return all;
  }
}

export function JobCheckpoints({ events, job }: { events: FineTuningEvent[]; job: FineTuningJob }) {
  const saved = useMemo(() => {
    const rows = events.flatMap((event) =>
      event.checkpoint_save ? [{ ...event.checkpoint_save, time: event.create_time, key: event.id }] : [],
    );
    const losses = new Map(
      events.flatMap((event) => (event.eval_complete ? [[event.eval_complete.step, num(event.eval_complete.valid_loss)] as const] : [])),
    );
    return rows.map((row) => ({ ...row, loss: losses.get(row.step) ?? NaN })).reverse();
  }, [events, events.length]);
  // λ and branch are in the platform's list alone, which has those that are kept.
  const listed = usePoll(`checkpoints ${job.id} ${saved.length}`, (signal) => everyCheckpoint(job.id, signal));
  const kept = new Map(listed.data?.map((checkpoint) => [checkpoint.name, checkpoint]));
  if (saved.length === 0) {
    return (
      <div class="card">
        <Empty icon="save" title="No checkpoints yet">
          <p>A running job saves its whole state now and then. After a crash or a pause it goes on from the last one, to the same bits.</p>
        </Empty>
      </div>
    );
  }
  const best = saved.find((row) => row.is_best);
  return (
    <section class="card flush scroll-x" tabIndex={0} aria-label="Checkpoints">
      <table>
        <caption class="hidden">Checkpoints, newest first</caption>
        <thead>
          <tr>
            <th scope="col">Checkpoint</th>
            <th scope="col" class="number">
              After update
            </th>
            <th scope="col" class="number">
              Held-out loss
            </th>
            <th scope="col" class="number">
              λ, mean
            </th>
            <th scope="col" class="number">
              Branch ratio, mean
            </th>
            <th scope="col" class="number">
              Size
            </th>
            <th scope="col">Written</th>
            <th scope="col">State</th>
          </tr>
        </thead>
        <tbody>
          {saved.map((row) => (
            <tr key={row.key}>
              <th scope="row">
                <code>{row.checkpoint}</code>
              </th>
              <td class="number">{count(row.step)}</td>
              <td class="number">{loss(row.loss)}</td>
              <td class="number">{figure(kept.get(row.checkpoint)?.lambda_mean, 3)}</td>
              <td class="number">{percent(meanOf(kept.get(row.checkpoint)?.branch_ratio ?? []), 2)}</td>
              <td class="number">{bytes(row.bytes)}</td>
              <td>{clock(row.time)}</td>
              <td>
                <span class="row">
                  {row.verified && (
                    <Badge tone="good" icon="check">
                      read back
                    </Badge>
                  )}
                  {row === best && (
                    <Badge tone="accent" icon="better">
                      best
                    </Badge>
                  )}
                  {row.checkpoint === job.last_checkpoint && (
                    <Badge tone="info" icon="save">
                      resumes from here
                    </Badge>
                  )}
                </span>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </section>
  );
}
