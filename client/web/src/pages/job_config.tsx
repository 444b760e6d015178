import { useMemo, useState } from 'preact/hooks';
import type { FineTuningJob } from '@/api/types';
import { flatten, isOwn, plainValue } from '@/model/flatten';
import { Icon } from '@/ui/icons';
import { Badge, Command, Loading } from '@/ui/parts';
import { to } from '@/ui/route';

function words(source: string): string {
  const [head = '', detail] = source.split(' (');
  const from = detail
    ? ({ 'paper)': ', as the paper has it', 'brief)': ', from the project’s brief', 'ours)': ', our choice' }[detail] ?? '')
    : '';
  const what = {
    USER: 'you',
    PRESET: 'preset',
    DEFAULT: 'default',
    AUTO: 'from your data and model',
    MODEL: 'from the adapter it goes on from',
    CLAMPED: 'cut to fit the run',
  }[head];
  return `${what ?? source}${from}`;
}

// Every value the job runs with, and who decided it.
export function JobConfig({ job }: { job: FineTuningJob }) {
  const [onlyOwn, setOnlyOwn] = useState(false);
  const [text, setText] = useState('');
  const config = job.effective_config;
  const rows = useMemo(() => flatten(config?.spec).filter(({ path }) => !path.startsWith('metadata.')), [config]);
  if (!config) return <Loading what="the configuration" />;
  const shown = rows.filter(
    ({ path, value }) => (!onlyOwn || isOwn(config.sources[path])) && `${path} ${value}`.toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <div class="stack">
      <section class="card stack tight" aria-label="Effective configuration">
        <div class="row apart">
          <h2>Effective configuration {config.preset_version && <Badge tone="accent">{config.preset_version}</Badge>}</h2>
          <div class="row">
            <input
              class="input"
              style={{ width: '190px' }}
              type="search"
              aria-label="Search settings"
              placeholder="Search settings"
              value={text}
              onInput={(event) => setText(event.currentTarget.value)}
            />
            <button type="button" class="chip" aria-pressed={onlyOwn} onClick={() => setOnlyOwn(!onlyOwn)}>
              Only what differs from preset and defaults
            </button>
          </div>
        </div>
        <div class="scroll-x" tabIndex={0} role="region" aria-label="Settings">
          <table>
            <thead>
              <tr>
                <th scope="col">Setting</th>
                <th scope="col">Value</th>
                <th scope="col">Decided by</th>
              </tr>
            </thead>
            <tbody>
              {shown.map(({ path, value }) => {
                const source = config.sources[path];
                return (
                  <tr key={path}>
                    <th scope="row">
                      <code>{path}</code>
                    </th>
                    <td class="wrap-any num">{plainValue(path, value)}</td>
                    <td class="small">
                      {isOwn(source) ? (
                        <Badge tone="accent" icon="dot">
                          {words(source!)}
                        </Badge>
                      ) : (
                        <span class="muted">{source ? words(source) : ''}</span>
                      )}
                    </td>
                  </tr>
                );
              })}
              {shown.length === 0 && (
                <tr>
                  <td colSpan={3} class="muted">
                    {onlyOwn ? 'Nothing: everything is the preset’s or the platform’s choice.' : 'No setting matches.'}
                  </td>
                </tr>
              )}
            </tbody>
          </table>
        </div>
      </section>
      <section class="card stack tight" aria-label="Files and commands">
        <h2>Data</h2>
        <p>
          Training rows: <a href={to(['files', job.training_file])}>{job.training_file}</a>
          {job.validation_file && (
            <>
              , held-out rows: <a href={to(['files', job.validation_file])}>{job.validation_file}</a>
            </>
          )}
        </p>
        {Object.keys(job.metadata).length > 0 && (
          <p class="row">
            {Object.entries(job.metadata).map(([key, value]) => (
              <span class="tag" key={key}>
                {key} = {value}
              </span>
            ))}
          </p>
        )}
        <h2 class="page-end">The same on the command line</h2>
        <Command text={`dexctl jobs watch ${job.id}`} />
        <p class="row">
          <a class="button" href={to(['jobs', 'new'], { like: job.id })}>
            <Icon name="plus" />
            New job like this one
          </a>
        </p>
      </section>
    </div>
  );
}
