import type { RpcError } from '@/api/error';
import type { Estimate } from '@/api/types';
import { bytes, count, duration, num, short } from '@/model/format';
import { commandOf, type Fault, type Recipe } from '@/model/recipe';
import { Icon } from '@/ui/icons';
import { Act, Badge, Command, ErrorNote, Facts, Note } from '@/ui/parts';

const classes: Record<string, string> = {
  LIGHT: 'light: hundreds fit beside each other',
  KVO: 'K, V and O: some fit beside each other',
  MODEL: 'a whole model',
};

// What the job would cost, before anything is started, and the button that starts it.
export function EstimatePanel({
  recipe,
  estimate,
  error,
  asking,
  faults,
  submitting,
  probing,
  onProbe,
}: {
  recipe: Recipe;
  estimate: Estimate | undefined;
  error: RpcError | undefined;
  asking: boolean;
  faults: Fault[];
  submitting: boolean;
  probing: boolean;
  onProbe: () => void;
}) {
  const blocked = estimate ? !estimate.allowed_to_proceed : false;
  return (
    <aside class="stack sticky" aria-label="Estimate">
      <section class="card stack tight">
        <div class="row apart">
          <h2>Estimate</h2>
          {asking ? (
            <span class="small muted row" role="status">
              <Icon name="spin" class="spin" size={15} />
              reckoning …
            </span>
          ) : (
            estimate && (
              <Badge
                tone={estimate.method === 'METHOD_PROBE' ? 'good' : 'idle'}
                icon={estimate.method === 'METHOD_PROBE' ? 'check' : 'dot'}
              >
                {estimate.method === 'METHOD_PROBE' ? 'measured' : 'by formula'}
              </Badge>
            )
          )}
        </div>
        {faults.length > 0 && !estimate && <p class="muted">{faults[0]!.message}</p>}
        <ErrorNote error={error} />
        {estimate && <Numbers estimate={estimate} />}
        <Act type="submit" kind="primary" icon="play" busy={submitting} disabled={blocked}>
          {recipe.hold ? 'Have it checked' : 'Start the job'}
        </Act>
        {estimate && (
          <Act icon="platform" busy={probing} onClick={onProbe} title="Waits for a worker, at most five minutes">
            {probing ? 'A worker does one update …' : 'Measure on a worker'}
          </Act>
        )}
      </section>
      <section class="card stack tight">
        <h2>The same on the command line</h2>
        <Command text={commandOf(recipe)} />
      </section>
    </aside>
  );
}

function Numbers({ estimate }: { estimate: Estimate }) {
  const low = num(estimate.low_seconds),
    high = num(estimate.high_seconds),
    expected = num(estimate.expected_duration_seconds);
  const scale = Math.max(high, 1) * 1.08;
  const fit = Object.entries(estimate.nearest_fit);
  return (
    <>
      <div>
        <div class="verdict" style={{ gridTemplateColumns: 'minmax(0, 1fr)' }}>
          <span class="big">{duration(expected)}</span>
        </div>
        <div class="range-bar" aria-hidden="true">
          <i style={{ left: `${(100 * low) / scale}%`, width: `${(100 * (high - low)) / scale}%` }} />
          <b style={{ left: `${(100 * expected) / scale}%` }} />
        </div>
        <p class="small muted">
          between {duration(low)} and {duration(high)}, once a worker has begun
        </p>
      </div>
      <Facts
        items={[
          ['Updates', `${count(estimate.total_steps)} of ${count(estimate.train_tokens_per_step)} tokens`],
          ['Trains', `${short(estimate.trained_parameters)} parameters`],
          ['Memory', bytes(estimate.peak_host_memory_bytes)],
          [
            'Adapter',
            <>
              {bytes(estimate.artifact_bytes)}
              <br />
              <span class="small muted">{classes[estimate.artifact_class] ?? estimate.artifact_class}</span>
            </>,
          ],
        ]}
      />
      {!estimate.fits && (
        <Note tone="bad" live>
          <p>
            <strong>It does not fit into the workers’ memory.</strong>
          </p>
          {fit.length > 0 && (
            <p>
              This would:{' '}
              {fit.map(([path, value]) => (
                <code key={path}>
                  {path} = {value}{' '}
                </code>
              ))}
            </p>
          )}
        </Note>
      )}
      {estimate.blockers.map((text) => (
        <Note tone="bad" key={text}>
          {text}
        </Note>
      ))}
      {estimate.warnings.map((text) => (
        <Note tone="warn" key={text}>
          {text}
        </Note>
      ))}
    </>
  );
}
