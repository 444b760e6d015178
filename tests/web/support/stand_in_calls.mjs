// What the stand-in answers to each call.
import { randomOf, ulid } from './random.mjs';
import { samples } from './world.mjs';
import { eventsOf, metricsAt } from './world_events.mjs';
import { config, headReport } from './world_jobs.mjs';

const wait = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

// While a worker has a job, when it was last heard of; while it waits for one, when it should start.
function leaseOf({ state, waiting_reason }) {
  const at = (ms) => new Date(Date.now() + ms).toISOString();
  if (state === 'JOB_STATE_RUNNING') return { heartbeat_time: at(-3_000), lease_expire_time: at(27_000) };
  if (state === 'JOB_STATE_QUEUED' && waiting_reason === 'WAITING_REASON_CAPACITY') return { estimated_start_time: at(45 * 60_000) };
  return {};
}

const checkpointOf = (job, step) => ({
  id: `ftckpt-${job.id.slice(6)}-${step}`,
  job: job.id,
  type: 'TYPE_TRAINING',
  state: 'STATE_READY',
  step,
  name: `step-${step}`,
  bytes: '214000000',
  verified: true,
  lambda_mean: 0.05 + step / 1000,
  lambda: [0.1, 0.2, 0.3],
  branch_ratio: [0.01, 'NaN', 0.02],
  by_layer_step: step,
});

export function answersOf(world, Refusal) {
  const find = (list, id, what) => {
    const found = list.find((one) => one.id === id);
    if (!found) throw new Refusal(404, 'resource_not_found', `There is no ${what} ${id}.`);
    return found;
  };
  const page = (list, request, name, most = 1000) => {
    const begin = request.page_token ? Number(request.page_token) : 0;
    const size = Math.min(most, request.page_size || 20);
    return {
      [name]: list.slice(begin, begin + size),
      next_page_token: begin + size < list.length ? String(begin + size) : '',
    };
  };
  const job = (id) => find(world.jobs, id, 'job');
  const change = (id, over) => Object.assign(job(id), over, { update_time: new Date().toISOString() });
  const remove = (list, id) => ({
    id: list.splice(list.indexOf(find(list, id, 'object')), 1)[0].id,
  });
  let made = 0;

  return {
    'FineTuningService/ListFineTuningJobs': (request) => {
      const { states = [], preset = '' } = request.filter ?? {};
      const list = world.jobs.filter(
        (one) => (states.length === 0 || states.includes(one.state)) && (!preset || one.effective_config?.spec.dex?.preset === preset),
      );
      return page(
        list.map(({ effective_config, head_selection, ...item }) => item),
        request,
        'jobs',
      );
    },
    'FineTuningService/GetFineTuningJob': ({ id, with_head_selection }) => {
      const { head_selection, ...record } = job(id);
      const one = { ...record, ...leaseOf(record) };
      return with_head_selection ? { ...one, head_selection } : one;
    },
    'FineTuningService/ListFineTuningCheckpoints': ({ job: id, page_size = 20, after = '' }) => {
      const list = [3, 2, 1].map((n) => checkpointOf(job(id), 40 * n));
      const begin = after ? list.findIndex((one) => one.id === after) + 1 : 0;
      return { checkpoints: list.slice(begin, begin + page_size), has_more: begin + page_size < list.length };
    },
    'FineTuningService/CreateFineTuningJob': ({ spec }) => {
      const created = {
        ...world.jobs[1],
        id: `ftjob-${ulid(1_000_000 + ++made)}`,
        state: 'JOB_STATE_QUEUED',
        queue_position: 3,
        display_name: spec.display_name ?? '',
        suffix: spec.suffix ?? '',
        model: spec.model,
        base_model: spec.model,
        effective_config: config(),
        create_time: new Date().toISOString(),
        update_time: new Date().toISOString(),
      };
      world.jobs.unshift(created);
      return created;
    },
    'FineTuningService/CancelFineTuningJob': ({ id }) =>
      change(id, {
        state: 'JOB_STATE_CANCELLED',
        queue_position: undefined,
        end_time: new Date().toISOString(),
      }),
    'FineTuningService/PauseFineTuningJob': ({ id }) =>
      change(id, {
        state: 'JOB_STATE_PAUSED',
        pause_reason: 'PAUSE_REASON_USER',
      }),
    'FineTuningService/ResumeFineTuningJob': ({ id }) =>
      change(id, {
        state: 'JOB_STATE_QUEUED',
        pause_reason: undefined,
        queue_position: 3,
        waiting_reason: 'WAITING_REASON_CAPACITY',
      }),
    'FineTuningService/DeleteFineTuningJob': ({ id }) => remove(world.jobs, id),
    'FineTuningService/CreateCheckpoint': ({ job: id }) => ({
      id: `ftckpt-${ulid(1)}`,
      job: id,
      type: 'TYPE_TRAINING',
      state: 'STATE_READY',
      step: 164,
      sha256: 'f'.repeat(64),
      verified: true,
      create_time: new Date().toISOString(),
    }),
    'FineTuningService/EstimateFineTuningJob': ({ spec, mode }) => ({
      train_tokens: '1118212',
      valid_tokens: '8013',
      train_tokens_per_step: '2048',
      total_steps: String(spec.hyperparameters?.max_steps ?? 546),
      expected_duration_seconds: 1120,
      low_seconds: 760,
      high_seconds: 1730,
      peak_host_memory_bytes: '1690000000',
      checkpoint_bytes: '214000000',
      artifact_bytes: '70800000',
      artifact_class: 'KVO',
      trained_parameters: '17690000',
      added_parameters: '1110000',
      fits: true,
      allowed_to_proceed: true,
      method: mode ?? 'METHOD_FORMULA',
      warnings: ['lr_small_batch: 2048 tokens an update are few for this learning rate; the loss may be noisy.'],
      effective_config: config(),
    }),
    'FineTuningService/PreviewHeadSelection': () => headReport(9),
    'AdminService/RedriveFineTuningJob': ({ id }) =>
      change(id, {
        state: 'JOB_STATE_QUEUED',
        error: undefined,
        queue_position: 3,
        end_time: undefined,
      }),
    'AdminService/WhoAmI': () => world.caller,
    'AdminService/ListApiKeys': (request) =>
      page(
        world.keys.filter((key) => key.tenant === (request.tenant || world.caller.tenant)),
        request,
        'keys',
      ),
    'AdminService/CreateApiKey': ({ name = '', scopes = [], expire_time, tenant }) => {
      if (!name || scopes.length === 0) throw new Refusal(400, 'missing_field', 'name and scopes are needed');
      const lacking = scopes.find((scope) => !world.caller.scopes.includes(scope));
      if (lacking) throw new Refusal(403, 'scope_missing', `You lack ${lacking} yourself.`);
      const key = {
        id: `key-${ulid(710_000 + ++made)}`,
        name,
        scopes,
        tenant: tenant || world.caller.tenant,
        prefix: 'dex_Ab3d',
        state: 'STATE_ACTIVE',
        create_time: new Date().toISOString(),
        ...(expire_time ? { expire_time } : {}),
      };
      world.keys.unshift(key);
      return { ...key, secret: 'dex_Ab3dMadeOnceAndShownOnce' };
    },
    'AdminService/RevokeApiKey': ({ id }) =>
      Object.assign(find(world.keys, id, 'key'), { state: 'STATE_REVOKED', revoke_time: new Date().toISOString() }),
    'AdminService/GetHealth': () => ({
      ...world.health,
      server_time: new Date().toISOString(),
    }),
    'FileService/ListFiles': (request) =>
      page(
        world.files.filter((file) => !request.state || file.state === request.state),
        request,
        'files',
      ),
    'FileService/PreviewFile': ({ encoding }) => ({
      encoding: {
        preset: 'small',
        max_seq_length: encoding?.max_seq_length ?? 512,
        truncation: 'TRUNCATION_RIGHT',
        train_on_inputs: false,
      },
      rows: [
        {
          line: '1',
          sequences: 1,
          rendered: 'Is it <b>late</b>? Très.',
          tokens: [
            { id: 7, text: 'Is it <b>late</b>? ', weight: 0 },
            { id: 8, text: 'Tr', weight: 1 },
            { id: 9, text: 'bytes:\\xc3', weight: 1 },
            { id: 10, text: 'bytes:\\xa8', weight: 1 },
            { id: 11, text: 's.', weight: 1 },
          ],
          prompt_tokens: '1',
          trainable_tokens: '4',
          row_tokens: '5',
        },
        { line: '2', sequences: 1, dropped_reason: 'no_trainable_tokens', dropped_message: 'no token of the row is trained' },
      ],
      next_offset: '0',
    }),
    'FileService/GetFile': ({ id }) => find([...world.files, ...world.results], id, 'file'),
    'FileService/ListFindings': ({ id, codes = [] }) => {
      const findings = (find([...world.files, ...world.results], id, 'file').findings ?? []).filter(
        (one) => codes.length === 0 || codes.includes(one.code),
      );
      return { findings, total: String(findings.length) };
    },
    'FileService/DeleteFile': ({ id }) => remove(world.files, id),
    'FileService/UploadFile': (header, data) => {
      const rows = data.toString('utf8').split('\n').filter(Boolean);
      const bad = rows.flatMap((row, i) => {
        try {
          return JSON.parse(row) && [];
        } catch {
          return [
            {
              line: String(i + 1),
              code: 'invalid_json',
              severity: 'SEVERITY_ERROR',
              message: 'expected a value at column 1',
              hint: 'each line is one JSON object',
              excerpt: row.slice(0, 80),
            },
          ];
        }
      });
      const file = {
        id: `file-${ulid(910_000 + ++made)}`,
        filename: header.filename,
        purpose: header.purpose,
        bytes: String(data.length),
        sha256: '9'.repeat(64),
        state: bad.length > 0 ? 'FILE_STATE_INVALID' : 'FILE_STATE_READY',
        format: 'FILE_FORMAT_TEXT',
        create_time: new Date().toISOString(),
        findings: bad,
        finding_counts: bad.length > 0 ? { invalid_json: String(bad.length) } : {},
        statistics: {
          rows_good: String(rows.length - bad.length),
          rows_skipped: String(bad.length),
          tokens_guess: String(Math.round(data.length / 4)),
          characters: String(data.length),
          longest_row_bytes: '100',
          text_bytes: String(data.length),
        },
      };
      world.files.unshift(file);
      return file;
    },
    'AdapterService/ListAdapters': (request) =>
      page(
        world.adapters.filter((one) => !request.base_model || one.base_model === request.base_model),
        request,
        'adapters',
      ),
    'AdapterService/GetAdapter': ({ id }) => find(world.adapters, world.aliases.find((one) => one.alias === id)?.adapter ?? id, 'adapter'),
    'AdapterService/PinAdapter': ({ id, pinned = false }) =>
      Object.assign(find(world.adapters, id, 'adapter'), { pinned, ...(pinned ? { desired: 'DESIRED_DEVICE' } : {}) }),
    'AdapterService/ListAdapterAliases': (request) => page(world.aliases, request, 'aliases'),
    'AdapterService/SetAdapterAlias': ({ alias: name, adapter: id, override_gates = false, etag = '', create_only = false }) => {
      const adapter = find(world.adapters, id, 'adapter');
      const old = world.aliases.find((one) => one.alias === name);
      if (old && create_only) throw new Refusal(409, 'name_taken', `There is an alias ${name} already.`);
      if (etag && old?.etag !== etag) throw new Refusal(409, 'etag_mismatch', `The alias ${name} was moved meanwhile.`);
      if (adapter.promotable === false && !override_gates) throw new Refusal(400, 'gate_not_passed', `${id} is not promotable.`);
      const now = new Date().toISOString();
      const target = { adapter: id, set_time: now, gates_overridden: adapter.promotable === false };
      const { base_model, content_sha256, version } = adapter;
      const moved = {
        ...(old ?? { alias: name, create_time: now, targets: [] }),
        ...{ adapter: id, base_model, content_sha256, version, etag: String(Number(old?.etag ?? 0) + 1) },
      };
      moved.targets = [target, ...moved.targets];
      world.aliases = [moved, ...world.aliases.filter((one) => one !== old)];
      for (const one of world.adapters) one.aliases = world.aliases.filter((alias) => alias.adapter === one.id).map(({ alias }) => alias);
      return moved;
    },
    'AdapterService/DeleteAdapterAlias': ({ alias: name, etag = '' }) => {
      const old = world.aliases.find((one) => one.alias === name);
      if (!old) throw new Refusal(404, 'resource_not_found', `There is no alias ${name}.`);
      if (etag && old.etag !== etag) throw new Refusal(409, 'etag_mismatch', `The alias ${name} was moved meanwhile.`);
      world.aliases = world.aliases.filter((one) => one !== old);
      for (const one of world.adapters) one.aliases = one.aliases.filter((alias) => alias !== name);
      return old;
    },
    'AdapterService/LoadAdapter': ({ id }) => ({
      adapter: Object.assign(find(world.adapters, id, 'adapter'), {
        desired: 'DESIRED_DEVICE',
        replicas: [{ worker: 'worker-cpu-1', state: 'STATE_LOADED' }],
      }),
    }),
    'AdapterService/UnloadAdapter': ({ id }) =>
      Object.assign(find(world.adapters, id, 'adapter'), {
        desired: 'DESIRED_ABSENT',
        replicas: [],
      }),
    'AdapterService/ExportAdapter': ({ adapter }) => ({
      id: `export-${ulid(5)}`,
      adapter,
      state: 'STATE_READY',
      bytes: '269000000',
      sha256: 'e'.repeat(64),
      certificate: {
        largest_logit_difference: 6.3e-5,
        mean_logit_difference: 4.1e-6,
        tokens: '4096',
        within_bound: true,
        dtype: 'bfloat16',
        base_weights_sha256: 'a'.repeat(64),
      },
      create_time: new Date().toISOString(),
    }),
    'AdapterService/DeleteAdapter': ({ id }) => remove(world.adapters, id),
    'AdapterService/ImportAdapter': (header) => ({
      ...world.adapters[0],
      id: `ft:${header.base_model}:default:${header.suffix}:${ulid(77)}`,
      origin: 'ORIGIN_IMPORTED',
    }),
    'EvaluationService/ListEvaluations': (request) =>
      page(
        world.evaluations.map(({ results, ...item }) => item),
        request,
        'evaluations',
      ),
    'EvaluationService/GetEvaluation': ({ id }) => find(world.evaluations, id, 'evaluation'),
    'EvaluationService/CreateEvaluation': ({ spec }) => {
      const created = {
        ...world.evaluations[0],
        id: `eval-${ulid(810_000 + ++made)}`,
        spec: { ...world.evaluations[0].spec, tasks: spec.tasks },
        state: 'JOB_STATE_QUEUED',
        queue_position: 1,
        progress: undefined,
      };
      world.evaluations.unshift(created);
      return created;
    },
    'EvaluationService/CancelEvaluation': ({ id }) =>
      Object.assign(find(world.evaluations, id, 'evaluation'), {
        state: 'JOB_STATE_CANCELLED',
      }),
    'EvaluationService/DeleteEvaluation': ({ id }) => remove(world.evaluations, id),
    'EvaluationService/ListEvaluationSamples': () => ({
      samples,
      next_page_token: '',
    }),
    'EvaluationService/CompareEvaluations': ({ a, b }) => ({
      a,
      b,
      notes: ['Both read the same 62 documents.'],
      differences: [
        {
          task: 'perplexity',
          metric: 'perplexity',
          subject_a: 'base',
          subject_b: 'base',
          value_a: 21.41,
          value_b: 21.41,
          delta: 0,
          delta_low: 0,
          delta_high: 0,
          confidence: 0.95,
          verdict: 'VERDICT_NO_DIFFERENCE',
          n: '62',
        },
        {
          task: 'perplexity',
          metric: 'perplexity',
          subject_a: 'python',
          subject_b: 'python',
          value_a: 20.87,
          value_b: 20.41,
          delta: -0.46,
          delta_low: -0.61,
          delta_high: -0.29,
          confidence: 0.95,
          verdict: 'VERDICT_BETTER',
          n: '62',
        },
      ],
    }),
    'ModelService/ListModels': () => ({ models: world.models }),
    'ModelService/ListPresets': () => ({ presets: world.presets }),
    'ModelService/GetPreset': ({ name }) => world.presets.find((preset) => preset.name === (name === 'auto' ? 'small' : name)),
    'ModelService/GetServerCapabilities': () => world.capabilities,
  };
}

const words = {
  base: [
    [262, ' with'],
    [338, ' open'],
    [24, '('],
    [2044, 'path'],
    [25, ')'],
    [347, ' as'],
    [263, ' f'],
    [42, ':'],
    [198, '\n'],
    [299, '    '],
    [516, 'return'],
    [263, ' f'],
    [30, '.'],
    [967, 'read'],
    [2531, 'lines'],
    [365, '()'],
  ],
  python: [
    [262, ' with'],
    [338, ' open'],
    [24, '('],
    [2044, 'path'],
    [28, ','],
    [9031, ' encoding'],
    [45, '='],
    [18, '"'],
    [6471, 'utf'],
    [29, '-8'],
    [18, '"'],
    [25, ')'],
    [347, ' as'],
    [263, ' f'],
    [42, ':'],
    [198, '\n'],
    [299, '    '],
    [516, 'return'],
    [1107, ' ['],
    [2531, 'line'],
    [30, '.'],
    [7764, 'rstrip'],
    [365, '()'],
    [327, ' for'],
    [1602, ' line'],
    [276, ' in'],
    [263, ' f'],
    [77, ']'],
  ],
};

export function streamsOf(world, state, Refusal) {
  const known = new Map();
  const events = (job) => {
    if (!known.has(job.id)) {
      const long = job.display_name === 'A long run';
      const steps = long ? 100_000 : (job.progress?.step ?? 0);
      const total = long ? 100_000 : job.progress?.total_steps || 400;
      const begun = job.state !== 'JOB_STATE_QUEUED' && steps > 0;
      known.set(
        job.id,
        begun
          ? eventsOf(job, world.now, {
              steps,
              total,
              every: long ? 1000 : 40,
              ended: job.state === 'JOB_STATE_SUCCEEDED',
            })
          : [],
      );
    }
    return known.get(job.id);
  };
  const snapshotOf = ({ effective_config, head_selection, ...job }) => job;

  return {
    async *'FineTuningService/WatchFineTuningJob'({ id, after_sequence = '0' }) {
      const job = world.jobs.find((one) => one.id === id);
      if (!job) throw new Refusal(404, 'resource_not_found', `There is no job ${id}.`);
      yield { snapshot: snapshotOf(job) };
      const list = events(job);
      let sent = list.filter((event) => Number(event.sequence) <= Number(after_sequence)).length;
      for (; sent < list.length; sent++) yield { event: list[sent] };
      const random = randomOf(99);
      for (let told = job.state; job.state === 'JOB_STATE_RUNNING'; ) {
        await wait(state.pace ?? 150);
        if (state.breakStreams) throw new Refusal(503, 'server_draining', 'The gateway drains.', 'SYSTEM', true);
        if (job.state !== told) yield { snapshot: snapshotOf(job) };
        const step = Math.min(job.progress.total_steps, job.progress.step + 1);
        job.progress = {
          ...job.progress,
          step,
          progress_percentage: (100 * step) / job.progress.total_steps,
          estimated_remaining_seconds: (job.progress.total_steps - step) * 1.9,
          last_updated_time: new Date().toISOString(),
        };
        const sequence = String(list.length + 1);
        list.push({
          id: `ftevent-${id.slice(6)}-${sequence}`,
          sequence,
          create_time: new Date().toISOString(),
          level: 'LEVEL_INFO',
          type: 'metrics',
          message: '',
          attempt: 1,
          metrics: {
            ...metricsAt(step, job.progress.total_steps, random),
            lambda: [],
            branch_ratio: [],
          },
        });
        for (; sent < list.length; sent++) yield { event: list[sent] };
      }
      if (!['JOB_STATE_QUEUED', 'JOB_STATE_PAUSED'].includes(job.state)) return void (yield { snapshot: snapshotOf(job) });
      while (['JOB_STATE_QUEUED', 'JOB_STATE_PAUSED'].includes(job.state)) {
        await wait(200);
        yield {
          heartbeat: {
            server_time: new Date().toISOString(),
            last_sequence: String(list.length),
          },
        };
      }
      yield { snapshot: snapshotOf(job) };
    },
    async *'EvaluationService/WatchEvaluation'({ id }) {
      const evaluation = world.evaluations.find((one) => one.id === id);
      if (!evaluation) throw new Refusal(404, 'resource_not_found', `There is no evaluation ${id}.`);
      const { results, ...snapshot } = evaluation;
      yield { snapshot };
      yield {
        event: {
          id: `ftevent-${id.slice(5)}-1`,
          sequence: '1',
          create_time: evaluation.create_time,
          level: 'LEVEL_INFO',
          type: 'job_start',
          message: 'worker-cpu-1 begins attempt 1',
          attempt: 1,
          job_start: { worker: 'worker-cpu-1', attempt: 1 },
        },
      };
      while (evaluation.state === 'JOB_STATE_RUNNING' || evaluation.state === 'JOB_STATE_QUEUED') {
        await wait(300);
        yield {
          heartbeat: {
            server_time: new Date().toISOString(),
            last_sequence: '1',
          },
        };
      }
    },
    async *'InferenceService/GenerateStream'({ model, seed = '7', max_tokens = 16, dex_lambda_scale = 1 }) {
      const adapted = model.startsWith('ft:');
      yield {
        start: {
          id: 'gen-1',
          model,
          seed,
          create_time: new Date().toISOString(),
          system_fingerprint: 'engine-bf16',
          ...(adapted
            ? {
                adapter: {
                  id: model,
                  content_sha256: 'c'.repeat(64),
                  version: 'c'.repeat(12),
                  dex_lambda_scale,
                },
              }
            : {}),
        },
      };
      const tokens = (adapted && dex_lambda_scale > 0.3 ? words.python : words.base).slice(0, max_tokens);
      for (const [token_id, token] of tokens) {
        await wait(12);
        yield {
          delta: {
            text: token,
            logprobs: [{ token_id, token, logprob: -0.05 - (token_id % 10) / 12 }],
          },
        };
      }
      yield {
        finish: {
          finish_reason: tokens.length === max_tokens ? 'FINISH_REASON_LENGTH' : 'FINISH_REASON_STOP',
          usage: {
            prompt_tokens: 6,
            completion_tokens: tokens.length,
            total_tokens: 6 + tokens.length,
          },
          timing: {
            queue_ms: 0.2,
            first_token_ms: 18,
            total_ms: 18 + tokens.length * 12,
          },
        },
      };
    },
    async *'AdapterService/DownloadAdapter'() {
      for (let i = 0; i < 3; i++) yield { chunk: Buffer.alloc(4096, i).toString('base64') };
    },
    async *'FileService/DownloadFile'() {
      yield { chunk: Buffer.from('{"text": "a"}\n').toString('base64') };
    },
    async *'EvaluationService/DownloadEvaluation'() {
      yield { chunk: Buffer.from('tar').toString('base64') };
    },
  };
}
