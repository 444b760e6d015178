// Jobs of the stand-in's world: one of each kind that a page treats differently, and many more for the list.
import { randomOf, ulid } from './random.mjs';

export const layers = 30;
export const heads = 9;
const model = 'smollm2-135m-instruct';
const minute = 60_000;

export const at = (now, ms) => new Date(now + ms).toISOString();

export function adapterOf(n, suffix) {
  return `ft:${model}:default:${suffix}:${ulid(n)}`;
}

const spec = (over = {}) => ({
  model,
  training_file: `file-${ulid(900001)}`,
  validation_split: 0.05,
  seed: '4711',
  skip_budget_ratio: 0.01,
  priority: 4,
  pool: 'cpu',
  max_retries: 2,
  auto_start: true,
  dex: {
    preset: 'code',
    form: 'FORM_HEAD_MEAN',
    projection: 'PROJECTION_PER_HEAD',
    sign: 'SIGN_PLUS',
    train: 'TRAIN_KVO_DEX',
    w_d_init: 'BRANCH_INIT_ZEROS',
    start: 'START_IDENTITY',
    head_selection: {
      criterion: 'CRITERION_THRESHOLD',
      tau: 1.8,
      eta: 0.03,
      entropy_unit: 'ENTROPY_UNIT_ZSCORE',
      contribution_unit: 'CONTRIBUTION_UNIT_L2NORM',
      calibration: { n_sequences: 8, seq_length: 512, skip_rows: 32 },
      reselect_every_steps: 0,
    },
    lambda: {
      schedule: 'SCHEDULE_COSINE',
      start: 0.05,
      end: 0.65,
      anneal_steps: '400',
    },
  },
  hyperparameters: {
    n_epochs: 1,
    max_steps: 400,
    max_seq_length: 512,
    batch_size: 4,
    micro_batch_size: 4,
    learning_rate: 0.00005,
    branch_learning_rate: 0.0001,
    lr_scheduler_type: 'LR_SCHEDULER_COSINE',
    warmup_ratio: 0.03,
    max_grad_norm: 1,
    weight_decay: 0,
    packing: true,
    truncation: 'TRUNCATION_RIGHT',
    precision: 'PRECISION_FP32',
  },
  evaluation: { every_steps: 40, max_tokens: 8192 },
  checkpoints: {
    every_steps: 40,
    every_seconds: 900,
    keep_last: 2,
    keep_best: true,
  },
  ...over,
});

const sources = {
  model: 'USER',
  training_file: 'USER',
  validation_split: 'AUTO',
  seed: 'AUTO',
  'dex.preset': 'USER',
  'dex.form': 'PRESET (ours)',
  'dex.projection': 'PRESET (ours)',
  'dex.sign': 'PRESET (ours)',
  'dex.train': 'PRESET (paper)',
  'dex.head_selection.criterion': 'PRESET (brief)',
  'dex.head_selection.tau': 'PRESET (brief)',
  'dex.head_selection.eta': 'PRESET (brief)',
  'dex.lambda.schedule': 'PRESET (brief)',
  'dex.lambda.start': 'PRESET (brief)',
  'dex.lambda.end': 'PRESET (brief)',
  'dex.lambda.anneal_steps': 'CLAMPED',
  'hyperparameters.max_steps': 'USER',
  'hyperparameters.learning_rate': 'PRESET (brief)',
  'hyperparameters.batch_size': 'AUTO',
  'hyperparameters.max_seq_length': 'AUTO',
  'hyperparameters.n_epochs': 'PRESET (paper)',
  'evaluation.every_steps': 'AUTO',
  'checkpoints.every_seconds': 'DEFAULT (ours)',
};
export const config = (over) => ({
  spec: spec(over),
  preset_version: 'code@1',
  sources,
});

export function headReport(seed = 5) {
  const random = randomOf(seed);
  let total = 0;
  const rows = Array.from({ length: layers }, (_, layer) => {
    const entropy = Array.from({ length: heads }, () => 1.2 + 2.2 * random.next() + 0.6 * Math.sin(layer / 4));
    const importance = Array.from({ length: heads }, () => 0.02 + 0.2 * random.next() ** 3);
    const selected = entropy.flatMap((value, head) => (value > 3.45 || importance[head] < 0.0205 ? [head] : []));
    total += selected.length;
    return {
      entropy,
      importance,
      selected,
      chosen_by: selected.map((head) => (entropy[head] > 3.45 ? 'entropy' : 'contribution')),
      selected_ratio: selected.length / heads,
    };
  });
  return {
    criterion: 'THRESHOLD',
    layers: rows,
    selected_heads: total,
    selected_ratio: total / (layers * heads),
    stability_ratio: 0.83,
    warnings: [],
    calibration: {
      sequences: 8,
      tokens: '4096',
      skip_rows: 32,
      entropy_unit: 'nats',
      seed: '4711',
      source: 'training_file',
    },
    step: 0,
  };
}

const effect = (value, verdict) => ({
  verdict,
  value,
  ce_delta: value / 25,
  tokens: '8013',
  per_layer: Array.from({ length: layers }, (_, i) => ({
    ...(i % 3 === 1 ? {} : { ratio: value * (0.5 + i / layers) }),
    cosine: -0.1,
    lambda: 0.3 + 0.01 * i,
  })),
});

export function makeJobs(now, count) {
  const random = randomOf(42);
  const id = (n) => `ftjob-${ulid(1_000_000 - n)}`;
  const make = (n, over) => {
    const created = -(n * 7 + 2) * minute;
    const state = over.state;
    const begun = !['JOB_STATE_QUEUED'].includes(state);
    const over_ = ['JOB_STATE_SUCCEEDED', 'JOB_STATE_FAILED', 'JOB_STATE_CANCELLED', 'JOB_STATE_EXPIRED'].includes(state);
    return {
      id: id(n),
      model,
      base_model: model,
      seed: '4711',
      etag: `e${n}`,
      attempt: begun ? 1 : 0,
      priority: 4,
      training_file: `file-${ulid(900001)}`,
      create_time: at(now, created),
      update_time: at(now, created + 5 * minute),
      ...(begun ? { start_time: at(now, created + minute), worker: 'worker-cpu-1' } : {}),
      ...(over_ ? { end_time: at(now, created + 9 * minute) } : {}),
      ...over,
    };
  };
  const progress = (step, total, over = {}) => ({
    step,
    total_steps: total,
    epoch: step / total,
    progress_percentage: (100 * step) / total,
    estimated_remaining_seconds: (total - step) * 1.9,
    trained_tokens: String(step * 2048),
    train_loss: 2.2 - 0.4 * (step / total),
    valid_loss: 2.24 - 0.28 * (step / total),
    grad_norm: 0.91,
    learning_rate: 4.1e-5,
    lambda_mean: 0.21,
    branch_ratio: 0.0081,
    tokens_per_second: 1062,
    host_memory_bytes: '1702887424',
    last_updated_time: at(now, 0),
    ...over,
  });
  const succeeded = (n, over) =>
    make(n, {
      state: 'JOB_STATE_SUCCEEDED',
      fine_tuned_model: adapterOf(n, over.suffix ?? 'run'),
      progress: progress(400, 400, { estimated_remaining_seconds: 0 }),
      promotable: true,
      trained_tokens: '819200',
      metrics: {
        base_valid_loss: 2.2503,
        valid_loss: 1.9812,
        best_valid_loss: 1.9812,
        trained_parameters: '17690000',
        added_parameters: '1110000',
        peak_host_memory_bytes: '1702887424',
        tokens_per_second: 1058,
        best_step: 400,
        served_step: 400,
        early_stopped: false,
      },
      branch_effect: effect(0.0261, 'VERDICT_ACTIVE'),
      last_checkpoint: 'step-400',
      ...over,
    });
  const special = [
    make(0, {
      state: 'JOB_STATE_RUNNING',
      phase: 'JOB_PHASE_TRAINING',
      display_name: 'Python helpers, second try',
      suffix: 'python-helpers',
      progress: progress(160, 400),
      last_checkpoint: 'step-160',
      effective_config: config(),
      metadata: { team: 'tools', ticket: 'DX-204' },
    }),
    make(1, {
      state: 'JOB_STATE_QUEUED',
      waiting_reason: 'WAITING_REASON_CAPACITY',
      queue_position: 1,
      display_name: 'Support answers, spring',
      suffix: 'support-spring',
      effective_config: config(),
    }),
    make(2, {
      state: 'JOB_STATE_QUEUED',
      waiting_reason: 'WAITING_REASON_QUOTA',
      queue_position: 2,
      suffix: 'legal-notes',
      effective_config: config(),
    }),
    succeeded(3, {
      display_name: 'Python helpers',
      suffix: 'python',
      result_files: [`file-${ulid(900_010)}`, `file-${ulid(900_011)}`],
      effective_config: config(),
      head_selection: headReport(),
      gate_results: [
        {
          gate: 'held_out.loss',
          value: -0.2691,
          low: -0.3102,
          high: -0.2304,
          n: '603',
          passed: true,
          on_fail: 'BLOCK_ALIAS',
          condition: 'held_out.loss - base <= 0, high end',
        },
        {
          gate: 'multi_needle.accuracy',
          value: -0.0417,
          low: -0.0903,
          high: 0.0069,
          n: '240',
          passed: true,
          on_fail: 'BLOCK_ALIAS',
          condition: 'multi_needle.accuracy[length=2048] - base >= -0.1, low end',
        },
      ],
    }),
    make(4, {
      state: 'JOB_STATE_FAILED',
      suffix: 'long-context',
      progress: progress(0, 120),
      effective_config: config(),
      error: {
        code: 'out_of_memory',
        message:
          'The backward pass of a row of 8192 tokens did not fit: 15.2 GB of 16 GB were in use. Half the micro-batch was tried as well.',
        category: 'CAPACITY',
        retryable: false,
        step: 0,
        attempt: 2,
        out_of_memory: {
          where: 'WHERE_BACKWARD',
          longest_row_tokens: '8192',
          peak_memory_bytes: '15200000000',
          micro_batch_size: 2,
          max_seq_length: 8192,
          nearest_fit: {
            'hyperparameters.micro_batch_size': 1,
            'hyperparameters.max_seq_length': 4096,
          },
        },
      },
    }),
    make(5, {
      state: 'JOB_STATE_PAUSED',
      pause_reason: 'PAUSE_REASON_AWAITING_START',
      suffix: 'careful',
      display_name: 'Careful one',
      progress: progress(0, 400),
      effective_config: config(),
    }),
    succeeded(6, {
      display_name: 'A long run',
      suffix: 'long-run',
      effective_config: config(),
      progress: progress(100_000, 100_000, { estimated_remaining_seconds: 0 }),
      branch_effect: effect(0.0148, 'VERDICT_WEAK'),
    }),
    succeeded(7, {
      suffix: 'inert',
      display_name: '',
      promotable: false,
      branch_effect: effect(0.0011, 'VERDICT_INERT'),
      effective_config: config(),
      warnings: ['annealing_clamped: λ was to rise over 3000 updates; the run has 400.'],
    }),
  ];
  const names = ['support', 'legal', 'notes', 'reviews', 'sql', 'welsh', 'minutes', 'contracts', 'faq', 'tickets'];
  const states = [
    'JOB_STATE_SUCCEEDED',
    'JOB_STATE_SUCCEEDED',
    'JOB_STATE_SUCCEEDED',
    'JOB_STATE_SUCCEEDED',
    'JOB_STATE_FAILED',
    'JOB_STATE_CANCELLED',
    'JOB_STATE_EXPIRED',
  ];
  for (let n = special.length; n < count; n++) {
    const suffix = `${random.pick(names)}-${n}`;
    const state = random.pick(states);
    if (state === 'JOB_STATE_SUCCEEDED') {
      const value = 0.001 + 0.03 * random.next();
      const after = 1.9 + 0.4 * random.next();
      const base = succeeded(n, { suffix });
      special.push({
        ...base,
        metrics: { ...base.metrics, valid_loss: after },
        branch_effect: {
          value,
          verdict: value < 0.002 ? 'VERDICT_INERT' : value < 0.02 ? 'VERDICT_WEAK' : 'VERDICT_ACTIVE',
          ce_delta: value / 20,
          tokens: '8013',
        },
      });
    } else {
      special.push(
        make(n, {
          state,
          suffix,
          progress: progress(random.whole(399), 400),
          ...(state === 'JOB_STATE_FAILED'
            ? {
                error: {
                  code: 'invalid_training_file',
                  message: 'More rows than skip_budget_ratio allows have no trainable tokens: 31 of 400.',
                  category: 'USER',
                  retryable: false,
                  attempt: 1,
                },
              }
            : {}),
        }),
      );
    }
  }
  return special;
}
