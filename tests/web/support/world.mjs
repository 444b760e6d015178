// Everything else that the stand-in knows: models, presets, files, adapters, evaluations, health.
import { randomOf, ulid } from './random.mjs';
import { adapterOf, at, makeJobs } from './world_jobs.mjs';

const sha = (character) => character.repeat(64);

export function makeWorld({ jobs: count = 10_000 } = {}) {
  const now = Date.now();
  const jobs = makeJobs(now, count);
  const models = [
    {
      name: 'smollm2-135m-instruct',
      display_name: 'SmolLM2 135M Instruct',
      family: 'llama',
      license: 'Apache-2.0',
      parameters: '134515008',
      layers: 30,
      query_heads: 9,
      kv_heads: 3,
      head_dim: 64,
      hidden_size: 576,
      intermediate_size: 1536,
      context_length: 8192,
      vocab_size: 49152,
      weights_sha256: sha('a'),
      tokenizer_sha256: sha('b'),
      served: true,
      workers: 1,
      languages: ['en'],
      tied_embeddings: true,
      served_dtype: 'SERVED_DTYPE_BF16',
    },
    {
      name: 'qwen3-0.6b',
      display_name: 'Qwen3 0.6B',
      family: 'qwen3',
      license: 'Apache-2.0',
      parameters: '596049920',
      layers: 28,
      query_heads: 16,
      kv_heads: 8,
      head_dim: 128,
      hidden_size: 1024,
      intermediate_size: 3072,
      context_length: 32768,
      vocab_size: 151936,
      weights_sha256: sha('d'),
      tokenizer_sha256: sha('e'),
      served: false,
      workers: 0,
      languages: ['en', 'zh', 'de'],
      qk_norm: true,
    },
  ];
  const preset = (name, summary, lambda, heads, rates, more = {}) => ({
    name,
    version: `${name}@1`,
    summary,
    paper_method: name === 'paper',
    sources: { 'dex.lambda.schedule': name === 'paper' ? 'paper' : 'brief' },
    spec: {
      dex: {
        preset: name,
        lambda,
        head_selection: heads,
        projection: name === 'paper' ? 'PROJECTION_SHARED' : 'PROJECTION_PER_HEAD',
      },
      hyperparameters: {
        learning_rate: rates[0],
        branch_learning_rate: rates[1],
        n_epochs: 1,
        ...more,
      },
    },
  });
  const cosine = (start, end) => ({ schedule: 'SCHEDULE_COSINE', start, end });
  const threshold = (tau, eta) => ({
    criterion: 'CRITERION_THRESHOLD',
    tau,
    eta,
  });
  const presets = [
    preset(
      'paper',
      'The published method: shared W_D, minus sign, half of the heads by entropy, λ by Eq. 4.',
      { schedule: 'SCHEDULE_PAPER_EQ4' },
      { criterion: 'CRITERION_ENTROPY', fraction: 0.5 },
      [1e-4, 1e-4],
    ),
    preset('small', 'For models below a billion parameters.', cosine(0.05, 0.3), threshold(1, 0.03), [5e-5, 1e-4]),
    preset('medium', 'For models of one to 3.5 billion parameters.', cosine(0.1, 0.5), threshold(1.2, 0.05), [5e-5, 1e-4]),
    preset('large', 'For larger models.', cosine(0.1, 0.5), threshold(1.5, 0.07), [5e-5, 1e-4]),
    preset('code', 'For source code: fewer heads, a stronger subtraction.', cosine(0.05, 0.65), threshold(1.8, 0.03), [5e-5, 1e-4]),
    preset(
      'long_text',
      'For long texts: the longest rows that fit, cut into pieces.',
      cosine(0.05, 0.3),
      threshold(1, 0.03),
      [3.5e-5, 7e-5],
      { truncation: 'TRUNCATION_CHUNK' },
    ),
    preset('multilingual', 'For several languages: each gets an equal share.', cosine(0.05, 0.3), threshold(1, 0.03), [5e-5, 1e-4], {
      group_by: 'GROUP_BY_LANGUAGE',
    }),
  ];
  const files = [
    {
      id: `file-${ulid(900001)}`,
      filename: 'python_helpers.jsonl',
      purpose: 'FILE_PURPOSE_FINE_TUNE',
      bytes: '4823911',
      sha256: sha('1'),
      state: 'FILE_STATE_READY',
      format: 'FILE_FORMAT_TEXT',
      create_time: at(now, -86_400_000),
      finding_counts: { duplicate_row: '3' },
      statistics: {
        rows_good: '2901',
        rows_skipped: '0',
        characters: '4702113',
        tokens_guess: '1175528',
        duplicate_rows: '3',
        rows_by_tag: { stdlib: '2310', tests: '591' },
        rows_by_language: { en: '2901' },
        longest_row_bytes: '81233',
        text_bytes: '4702113',
      },
      findings: [
        {
          line: '118',
          byte_offset: '201933',
          code: 'duplicate_row',
          severity: 'SEVERITY_WARNING',
          message: 'equal to line 92',
          hint: 'equal rows count twice',
          excerpt: '{"text": "def read_lines(path):…',
        },
      ],
    },
    {
      id: `file-${ulid(900002)}`,
      filename: 'support_chats.jsonl',
      purpose: 'FILE_PURPOSE_FINE_TUNE',
      bytes: '1200345',
      sha256: sha('2'),
      state: 'FILE_STATE_INVALID',
      format: 'FILE_FORMAT_CHAT',
      create_time: at(now, -3_600_000),
      finding_counts: {
        unknown_role: '14',
        invalid_json: '2',
        empty_content: '1',
      },
      statistics: {
        rows_good: '783',
        rows_skipped: '17',
        characters: '1100000',
        tokens_guess: '275000',
        duplicate_rows: '0',
        longest_row_bytes: '4096',
        text_bytes: '1100000',
      },
      findings: [
        {
          line: '3',
          byte_offset: '901',
          json_path: '$.messages[0].role',
          code: 'unknown_role',
          severity: 'SEVERITY_ERROR',
          message: 'the role "human" is not one of system, developer, user, assistant, tool',
          hint: 'did you mean "user"?',
          excerpt: '{"messages": [{"role": "human", "content": "<b>Hello</b>"}]}',
        },
        {
          line: '57',
          byte_offset: '33911',
          code: 'invalid_json',
          severity: 'SEVERITY_ERROR',
          message: 'expected , or } at column 41',
          hint: 'each line is one JSON object',
          excerpt: '{"messages": [{"role": "user", "content": "ca',
        },
      ],
    },
    {
      id: `file-${ulid(900003)}`,
      filename: 'wiki.test.raw',
      purpose: 'FILE_PURPOSE_EVALS',
      bytes: '1290590',
      sha256: sha('3'),
      state: 'FILE_STATE_READY',
      create_time: at(now, -172_800_000),
    },
  ];
  const proven = {
    tensors_expected: '210',
    tensors_matched: '210',
    probe_tokens: 64,
    max_logprob_change: 0.4127,
    verdict: 'VERDICT_PROVEN',
  };
  const adapters = jobs
    .filter((job) => job.fine_tuned_model)
    .slice(0, 60)
    .map((job, i) => ({
      id: job.fine_tuned_model,
      job: job.id,
      base_model: job.base_model,
      base_weights_sha256: sha('a'),
      tokenizer_sha256: sha('b'),
      method: 'dex',
      form: 'HEAD_MEAN',
      projection: 'PER_HEAD',
      train: 'kvo+dex',
      artifact_class: 'KVO',
      bytes: '70800000',
      content_sha256: sha('c'),
      version: 'c'.repeat(12),
      branch_effect: job.branch_effect,
      metrics: job.metrics,
      gate_results: job.gate_results ?? [],
      promotable: job.promotable,
      origin: i === 4 ? 'ORIGIN_IMPORTED' : 'ORIGIN_TRAINED',
      create_time: job.end_time,
      desired: i === 0 ? 'DESIRED_DEVICE' : 'DESIRED_ABSENT',
      replicas:
        i === 0
          ? [
              { worker: 'worker-cpu-1', state: 'STATE_LOADED', proof: proven },
              { worker: 'worker-cpu-2', state: 'STATE_LOADED', proof: { ...proven, max_logprob_change: 0, verdict: 'VERDICT_NO_EFFECT' } },
              { worker: 'worker-cpu-3', state: 'STATE_FAILED', error: 'no room beside 12 adapters', no_room: true },
            ]
          : [],
      aliases: i === 0 ? ['live'] : [],
    }));
  const target = (adapter, hours) => ({ adapter: adapter.id, set_time: at(now, -hours * 3_600_000) });
  const aliases =
    adapters.length < 2
      ? []
      : [
          {
            alias: 'live',
            adapter: adapters[0].id,
            base_model: adapters[0].base_model,
            content_sha256: adapters[0].content_sha256,
            version: adapters[0].version,
            targets: [target(adapters[0], 2), target(adapters[1], 50)],
            create_time: at(now, -180_000_000),
            etag: '2',
          },
        ];
  const caller = {
    tenant: 'default',
    scopes: ['files:read', 'files:write', 'jobs:read', 'jobs:write', 'adapters:read', 'adapters:serve', 'infer', 'admin'],
    key: `key-${ulid(700_003)}`,
    operator: true,
  };
  const key = (n, name, over) => ({
    id: `key-${ulid(n)}`,
    name,
    tenant: 'default',
    scopes: ['files:write', 'jobs:write'],
    prefix: `dex_${name.slice(0, 4)}`,
    create_time: at(now, -(800_000 - n) * 1000),
    state: 'STATE_ACTIVE',
    ...over,
  });
  const keys = [
    key(700_003, 'first admin', { scopes: caller.scopes, last_used_time: at(now, -30_000) }),
    key(700_002, 'nightly', { expire_time: at(now, 30 * 86_400_000) }),
    key(700_001, 'intern', { expire_time: at(now, -86_400_000), state: 'STATE_EXPIRED', last_used_time: at(now, -172_800_000) }),
    key(700_000, 'old laptop', { revoke_time: at(now, -3_600_000), state: 'STATE_REVOKED' }),
  ];
  // What a job's result_files name; ListFiles leaves them out.
  const results = jobs.flatMap((job) =>
    (job.result_files ?? []).map((id, i) => ({
      id,
      filename: i === 0 ? 'curves.csv' : 'curves.jsonl',
      purpose: 'FILE_PURPOSE_FINE_TUNE_RESULTS',
      bytes: i === 0 ? '48211' : '129004',
      sha256: sha('7'),
      state: 'FILE_STATE_READY',
      create_time: job.end_time,
    })),
  );
  const health = {
    version: '0.1.0',
    commit: '26473c6',
    server_time: at(now, 0),
    checks: [
      {
        topic: 'workers',
        name: 'worker-cpu-1',
        severity: 'SEVERITY_OK',
        finding: 'AMD EPYC, 2 cores, 8 GB; heartbeat 1 s old; runs 1 of 1 jobs; serves smollm2-135m-instruct in bfloat16',
      },
      {
        topic: 'store',
        name: 'append-only file',
        severity: 'SEVERITY_OK',
        finding: 'appendfsync always, 12 MB',
      },
      {
        topic: 'store',
        name: 'eviction',
        severity: 'SEVERITY_OK',
        finding: 'noeviction',
      },
      {
        topic: 'disk',
        name: 'data folder',
        severity: 'SEVERITY_WARN',
        finding: '9.1 GB of 64 GB are free',
        remedy: 'Make room: below 5 GB no job is started.',
      },
      {
        topic: 'clock',
        name: 'worker-cpu-1',
        severity: 'SEVERITY_OK',
        finding: '3 ms ahead',
      },
      {
        topic: 'models',
        name: 'smollm2-135m-instruct',
        severity: 'SEVERITY_OK',
        finding: 'weights and tokenizer have the listed hashes',
      },
      {
        topic: 'gateway',
        name: 'worker-cpu-1',
        severity: 'SEVERITY_OK',
        finding: 'reached in 0.4 ms',
      },
    ],
    promises: [
      {
        text: 'An acknowledged job is never lost',
        kept: true,
        reason: 'Redis writes its log before it answers (appendfsync always)',
      },
      {
        text: 'Running jobs survive five minutes without the store',
        kept: true,
        reason: 'leases last as long',
      },
      {
        text: 'Work goes on when a machine is lost',
        kept: false,
        reason: 'there is one worker only',
      },
    ],
  };
  const capabilities = {
    version: '0.1.0',
    commit: '26473c6',
    methods: ['dex', 'kvo_only', 'lora', 'adapter', 'full', 'diff'],
    presets: presets.map((one) => one.name),
    limits: {
      grpc_message_bytes: '4194304',
      queued_jobs: '20',
      running_jobs: '2',
      files: '100',
      upload_bytes: '8589934592',
    },
    pools: ['cpu'],
  };
  return {
    now,
    jobs,
    models,
    presets,
    files,
    adapters,
    aliases,
    caller,
    keys,
    results,
    health,
    capabilities,
    evaluations: makeEvaluations(now),
  };
}

function makeEvaluations(now) {
  const random = randomOf(11);
  const adapter = adapterOf(3, 'python');
  const subjects = [
    { model: 'smollm2-135m-instruct', label: 'base' },
    { model: 'smollm2-135m-instruct', adapter, label: 'python' },
  ];
  const row = (task, metric, dims, base, after, n, interval, better) => {
    const half = interval === 'INTERVAL_WILSON' ? 0.04 : Math.abs(base) * 0.02;
    const delta = after - base;
    const verdict = Math.abs(delta) < half ? 'VERDICT_NO_DIFFERENCE' : delta > 0 === better ? 'VERDICT_BETTER' : 'VERDICT_WORSE';
    const common = {
      task,
      metric,
      dims,
      confidence: 0.95,
      interval,
      n: String(n),
    };
    return [
      {
        ...common,
        subject: 'base',
        value: base,
        low: base - half,
        high: base + half,
      },
      {
        ...common,
        subject: 'python',
        value: after,
        low: after - half,
        high: after + half,
        delta,
        delta_low: delta - half * 0.8,
        delta_high: delta + half * 0.8,
        verdict,
      },
    ];
  };
  const cells = [];
  for (const length of [1024, 2048, 4096, 8192]) {
    for (const depth of [0, 25, 50, 75, 100]) {
      const base = Math.max(0, Math.min(1, 0.95 - Math.log2(length / 1024) * 0.17 - 0.08 * Math.sin((depth / 100) * Math.PI)));
      cells.push(
        ...row(
          'multi_needle',
          'accuracy',
          { length: String(length), depth: String(depth) },
          base,
          Math.max(0, Math.min(1, base + 0.06 * (random.next() - 0.3))),
          20,
          'INTERVAL_WILSON',
          true,
        ),
      );
    }
  }
  const results = [
    {
      task: 'perplexity',
      file: 'wiki.test.raw',
      rows: [
        ...row('perplexity', 'perplexity', {}, 21.41, 20.87, 62, 'INTERVAL_BOOTSTRAP', false),
        ...row('perplexity', 'loss', {}, 3.0639, 3.0384, 62, 'INTERVAL_BOOTSTRAP', false),
        ...row('perplexity', 'bits_per_byte', {}, 0.981, 0.979, 62, 'INTERVAL_BOOTSTRAP', false),
      ],
      notes: ['Read over the first 200000 tokens.'],
    },
    {
      task: 'multi_needle',
      rows: [...row('multi_needle', 'accuracy', {}, 0.74, 0.77, 400, 'INTERVAL_WILSON', true), ...cells],
      settings: '6 needles, 2 asked for',
      notes: [],
    },
    {
      task: 'head_analysis',
      file: 'wiki.test.raw',
      rows: row('head_analysis', 'entropy', {}, 2.61, 2.48, 8, 'INTERVAL_BOOTSTRAP', false),
      notes: [],
      head_tables: ['base', 'python'].map((subject) => ({
        metric: 'entropy',
        subject,
        heads: 9,
        layers: Array.from({ length: 30 }, (_, layer) => ({
          value: Array.from({ length: 9 }, () => 1.5 + 2 * random.next() + Math.sin(layer / 5)),
          low: [],
          high: [],
        })),
      })),
    },
  ];
  const spec = {
    subjects,
    tasks: [{ perplexity: { file: `file-${ulid(900003)}` } }, { multi_needle: {} }, { head_analysis: { file: `file-${ulid(900003)}` } }],
    seed: '0',
    confidence: 0.95,
  };
  const make = (n, over) => ({
    id: `eval-${ulid(800_000 - n)}`,
    spec,
    state: 'JOB_STATE_SUCCEEDED',
    attempt: 1,
    worker: 'worker-cpu-1',
    etag: 'e',
    create_time: at(now, -n * 3_600_000 - 60_000),
    start_time: at(now, -n * 3_600_000),
    end_time: at(now, -n * 3_600_000 + 900_000),
    update_time: at(now, -n * 3_600_000 + 900_000),
    progress: { step: 3, total_steps: 3, progress_percentage: 100 },
    results,
    ...over,
  });
  return [
    make(0, {
      state: 'JOB_STATE_RUNNING',
      phase: 'JOB_PHASE_EVALUATING',
      results: [],
      end_time: undefined,
      progress: { step: 1, total_steps: 3, progress_percentage: 33 },
    }),
    make(1, {}),
    make(2, {}),
    make(3, {
      state: 'JOB_STATE_FAILED',
      results: [],
      error: {
        code: 'invalid_evaluation_file',
        message: 'line 7 of questions.jsonl has no "answer"',
        category: 'USER',
        attempt: 1,
      },
    }),
  ];
}

export const samples = [
  {
    task: 'multi_needle',
    subject: 'python',
    item: '3',
    line: '0',
    prompt: 'The secret number of Oslo is 4711. … What is the secret number of Oslo?',
    expected: '4711',
    output: ' 4711.',
    score: 1,
    baseline_score: 0,
    task_index: 1,
    dims: { length: '2048', depth: '50' },
  },
  {
    task: 'multi_needle',
    subject: 'python',
    item: '9',
    line: '0',
    prompt: 'The secret number of Lima is 823. … What is the secret number of Lima? <img src=x onerror=alert(1)>',
    expected: '823',
    output: ' 283',
    score: 0,
    baseline_score: 1,
    task_index: 1,
    dims: { length: '4096', depth: '0' },
  },
];
