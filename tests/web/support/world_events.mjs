// Events of the stand-in's jobs: curves as training has them, with what happens between.
import { randomOf } from './random.mjs';
import { at, headReport, layers } from './world_jobs.mjs';

export function metricsAt(step, total, random) {
  const t = step / total;
  return {
    step,
    epoch: t,
    train_loss: 1.85 + 0.42 * Math.exp(-4.2 * t) + 0.06 * random.normal(),
    grad_norm: 0.7 + 0.5 * Math.exp(-5 * t) + 0.07 * Math.abs(random.normal()),
    learning_rate: 5e-5 * Math.min(1, step / (0.03 * total)) * (0.5 + 0.5 * Math.cos(Math.PI * t)),
    trained_tokens: String(step * 2048),
    tokens_per_second: 1060 + 25 * random.normal(),
    lambda_mean: 0.05 + 0.6 * (0.5 - 0.5 * Math.cos(Math.PI * t)),
  };
}

function byLayer(t, random) {
  return {
    lambda: Array.from({ length: layers }, (_, i) =>
      Number((0.05 + 0.6 * (0.5 - 0.5 * Math.cos(Math.PI * t)) * (0.7 + (0.6 * i) / layers)).toFixed(4)),
    ),
    branch_ratio: Array.from({ length: layers }, (_, i) =>
      i % 7 === 3 ? 'NaN' : Number((0.03 * t * (0.3 + i / layers) + 0.001 * random.next()).toFixed(5)),
    ),
  };
}

// Which held-out rows make the loss what it is, `less` nats after training.
function behind(step, less) {
  const group = (by, name, loss, rows, tokens) => ({ by, name, loss: loss - less, rows, tokens });
  return [
    [
      'group_loss',
      'Held-out loss of 4 groups of rows',
      {
        group_loss: {
          step,
          groups: [
            group('tag', 'stdlib', 2.1, '480', '6410'),
            group('tag', 'tests', 2.8504, '123', '1603'),
            group('length', '64', 2.4, '210', '1900'),
            group('length', '512', 2.2, '393', '6113'),
          ],
        },
      },
    ],
    [
      'worst_rows',
      'Highest loss: line 2207 of the training file',
      {
        worst_rows: {
          step,
          file: 'training_file',
          rows: [
            { line: '2207', loss: 7.3125 - less, tokens: '31', tag: 'tests', language: 'en' },
            { line: '118', loss: 6.02 - less, tokens: '12' },
          ],
        },
      },
    ],
  ];
}

// All events of a job up to `steps` of `total` updates, oldest first; `ended` adds how it ended.
export function eventsOf(job, now, { steps, total, every, ended }) {
  const random = randomOf(7);
  const events = [];
  const begun = Date.parse(job.create_time);
  const add = (type, message, data = {}, level = 'LEVEL_INFO') => {
    const sequence = events.length + 1;
    events.push({
      id: `ftevent-${job.id.slice(6)}-${sequence}`,
      sequence: String(sequence),
      create_time: new Date(begun + sequence * 900).toISOString(),
      level,
      type,
      message,
      attempt: 1,
      ...data,
    });
  };
  add('job_queued', 'Queued in pool cpu, next in line', {
    job_queued: { position: 1, pool: 'cpu' },
  });
  add('job_start', 'worker-cpu-1 begins attempt 1', {
    job_start: { worker: 'worker-cpu-1', attempt: 1, resumed_from_step: 0 },
  });
  add('validation_complete', '2298 examples of at most 512 tokens to train on (1118212 tokens), 603 held out. 12 rows were dropped.', {
    validation_complete: {
      rows: '2298',
      dropped: { no_trainable_tokens: '12' },
      tokens: '1118212',
      trainable_tokens: '1118212',
      valid_rows: '603',
      valid_tokens: '8013',
    },
  });
  const heads = headReport();
  add('head_selection_complete', `THRESHOLD selected ${heads.selected_heads} heads`, {
    head_selection_complete: {
      criterion: 'THRESHOLD',
      selected_heads: heads.selected_heads,
      selected_ratio: heads.selected_ratio,
      step: 0,
      layers: heads.layers.map(({ entropy, importance, selected }) => ({
        entropy,
        importance,
        selected,
      })),
    },
  });
  add(
    'advice',
    'λ can reach 0.65 in 400 updates, the branch’s share of O about 0.03: it will act.',
    {
      advice: {
        topic: 'branch_reach',
        evidence: 'r_reach 0.031',
        suggestion: 'More updates let λ rise further.',
      },
    },
    'LEVEL_WARN',
  );
  add('training_start', `${total} updates, 17.69 M parameters are trained`, {
    training_start: {
      total_steps: total,
      trained_parameters: '17690000',
      added_parameters: '1110000',
      anneal_steps: total,
    },
  });
  add('eval_complete', 'base: validation loss 2.2503 over 8013 tokens', {
    eval_complete: {
      step: 0,
      valid_loss: 2.2503,
      token_accuracy: 0.52,
      tokens: '8013',
      branch_ratio: 0,
    },
  });
  for (const one of behind(0, 0)) add(...one);
  for (let step = 1; step <= steps; step++) {
    const evaluates = step % every === 0;
    const t = step / total;
    const metrics = metricsAt(step, total, random);
    add('metrics', '', {
      metrics: { ...metrics, lambda: [], branch_ratio: [] },
    });
    if (!evaluates) continue;
    const loss = 1.98 + 0.27 * Math.exp(-4 * t) + 0.004 * random.normal();
    add('eval_complete', `step ${step}: validation loss ${loss.toFixed(4)} over 8013 tokens, branch ratio ${(0.026 * t).toFixed(4)}`, {
      eval_complete: {
        step,
        valid_loss: loss,
        token_accuracy: 0.55,
        tokens: '8013',
        branch_ratio: 0.026 * t,
      },
    });
    if (step === every) for (const one of behind(step, 0.25)) add(...one);
    add('metrics', '', { metrics: { ...metrics, ...byLayer(t, random) } }); // the trainer tells the update once more, with its layers
    add('checkpoint_save', `saved step-${step} (best so far)`, {
      checkpoint_save: {
        checkpoint: `step-${step}`,
        step,
        bytes: '214000000',
        is_best: true,
        verified: true,
      },
    });
  }
  if (ended) {
    add('training_complete', `${steps} updates in 12 min`, {
      training_complete: {
        steps,
        trained_tokens: '819200',
        duration_seconds: 742,
        served_step: steps,
      },
    });
    add('export_complete', 'final/ reads back as trained. Folded, it differs by at most 6.3e-05 in a logit', {
      export_complete: {
        bytes: '70800000',
        content_sha256: 'c'.repeat(64),
        max_abs_logit_diff: 6.3e-5,
      },
    });
    add('branch_verdict', 'branch_effect 0.0261: ACTIVE', {
      branch_verdict: {
        verdict: 'VERDICT_ACTIVE',
        value: 0.0261,
        ce_delta: 0.001,
        tokens: '8013',
      },
    });
    add('job_complete', 'The adapter is published', {
      job_end: { fine_tuned_model: job.fine_tuned_model },
    });
  }
  return events;
}

export const now = (ms) => at(Date.now(), ms);
