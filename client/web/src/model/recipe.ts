import type { FineTuningJobSpec, Loose } from '@/api/types';

// The new-job form, as typed: empty text means that the server chooses.
export interface Recipe {
  model: string;
  training_file: string;
  validation_file: string;
  method: 'dex' | 'kvo_only' | 'lora' | 'adapter' | 'full' | '';
  preset: string;
  suffix: string;
  name: string;
  epochs: string;
  max_steps: string;
  batch_size: string;
  max_seq_length: string;
  learning_rate: string;
  seed: string;
  early_stopping: string; // patience
  base_guard: string; // kl_max
  promote: boolean; // only if surely not worse than the base on held-out rows
  hold: boolean; // a worker checks it, then it waits
}

export const emptyRecipe: Recipe = {
  model: '',
  training_file: '',
  validation_file: '',
  method: 'dex',
  preset: 'auto',
  suffix: '',
  name: '',
  epochs: '',
  max_steps: '',
  batch_size: '',
  max_seq_length: '',
  learning_rate: '',
  seed: '',
  early_stopping: '',
  base_guard: '',
  promote: false,
  hold: false,
};

export interface Fault {
  field: keyof Recipe;
  message: string;
}

const whole = /^\d+$/;
const decimal = /^\d*\.?\d+(e[-+]?\d+)?$/i;

// What can be said without the server; it has the last word.
export function faultsOf(recipe: Recipe): Fault[] {
  const faults: Fault[] = [];
  const number = (field: keyof Recipe, low: number, high: number, pattern: RegExp, what: string) => {
    const text = String(recipe[field]).trim();
    if (text && (!pattern.test(text) || Number(text) < low || Number(text) > high))
      faults.push({ field, message: `${what}, not “${text}”` });
  };
  if (!recipe.model) faults.push({ field: 'model', message: 'Choose a base model.' });
  if (!recipe.training_file) faults.push({ field: 'training_file', message: 'Choose or upload training data.' });
  if (recipe.suffix && !/^[A-Za-z0-9._-]{1,64}$/.test(recipe.suffix)) {
    faults.push({ field: 'suffix', message: 'Up to 64 letters, digits, dots, hyphens and underscores, no spaces.' });
  }
  number('epochs', 1, 100, whole, 'A whole number from 1 to 100');
  number('max_steps', 0, 1e9, whole, 'A whole number');
  number('batch_size', 1, 4096, whole, 'A whole number from 1 to 4096');
  number('max_seq_length', 16, 1e7, whole, 'A whole number from 16');
  number('learning_rate', 1e-12, 10, decimal, 'A number above 0 such as 1e-4');
  number('seed', 0, Number.MAX_SAFE_INTEGER, whole, 'A whole number');
  number('early_stopping', 1, 1000, whole, 'A whole number of evaluations');
  number('base_guard', 0, 100, decimal, 'A number from 0 to 100');
  return faults;
}

export function specOf(recipe: Recipe): Loose<FineTuningJobSpec> {
  const goesOn = recipe.model.startsWith('ft:');
  const spec: Loose<FineTuningJobSpec> = { model: recipe.model, training_file: recipe.training_file };
  if (recipe.validation_file) spec.validation_file = recipe.validation_file;
  if (recipe.suffix) spec.suffix = recipe.suffix;
  if (recipe.name) spec.display_name = recipe.name;
  if (recipe.seed) spec.seed = recipe.seed;
  const preset = recipe.preset && recipe.preset !== 'auto' ? { preset: recipe.preset } : {};
  if (!goesOn) {
    if (recipe.method === 'dex') spec.dex = recipe.preset ? { preset: recipe.preset } : {};
    if (recipe.method === 'kvo_only') spec.kvo_only = preset;
    if (recipe.method === 'lora') spec.lora = {};
    if (recipe.method === 'adapter') spec.adapter = {};
    if (recipe.method === 'full') spec.full = {};
  }
  const hyperparameters = {
    ...(recipe.epochs && { n_epochs: Number(recipe.epochs) }),
    ...(recipe.max_steps && { max_steps: Number(recipe.max_steps) }),
    ...(recipe.batch_size && { batch_size: Number(recipe.batch_size) }),
    ...(recipe.max_seq_length && { max_seq_length: Number(recipe.max_seq_length) }),
    ...(recipe.learning_rate && { learning_rate: Number(recipe.learning_rate) }),
  };
  if (Object.keys(hyperparameters).length > 0) spec.hyperparameters = hyperparameters;
  if (recipe.early_stopping) spec.early_stopping = { enabled: true, patience: Number(recipe.early_stopping) };
  if (recipe.base_guard) spec.watchdog = { base_guard: { kl_max: Number(recipe.base_guard) } };
  if (recipe.promote) spec.gates = [{ task: 'held_out', metric: 'loss', op: 'OP_LE', threshold: 0 }];
  if (recipe.hold) spec.auto_start = false;
  return spec;
}

// For a shell: as it is where that is safe, else in single quotes.
export function quoted(text: string): string {
  return /^[A-Za-z0-9_./:@=,+-]+$/.test(text) ? text : `'${text.replace(/'/g, `'\\''`)}'`;
}

// The command line that asks for the same job.
export function commandOf(recipe: Recipe): string {
  const goesOn = recipe.model.startsWith('ft:');
  const parts = ['dexctl jobs create'];
  const flag = (name: string, value: string) => value && parts.push(`--${name} ${quoted(value)}`);
  flag('model', recipe.model || 'MODEL');
  flag('training-file', recipe.training_file || 'FILE');
  flag('validation-file', recipe.validation_file);
  if (!goesOn && recipe.method && recipe.method !== 'dex') flag('method', recipe.method);
  const presetActs = !goesOn && (recipe.method === 'dex' || recipe.method === 'kvo_only');
  if (presetActs && recipe.preset && (recipe.method === 'dex' || recipe.preset !== 'auto')) flag('preset', recipe.preset);
  flag('suffix', recipe.suffix);
  flag('name', recipe.name);
  flag('epochs', recipe.epochs);
  flag('max-steps', recipe.max_steps);
  flag('batch-size', recipe.batch_size);
  flag('max-seq-length', recipe.max_seq_length);
  flag('learning-rate', recipe.learning_rate);
  flag('seed', recipe.seed);
  flag('early-stopping', recipe.early_stopping);
  flag('base-guard', recipe.base_guard);
  if (recipe.promote) parts.push(`--promote-if 'held_out.loss<=0'`);
  if (recipe.hold) parts.push('--hold');
  return parts.join(' \\\n  ');
}
