import { flatten, isOwn, plainValue } from '@/model/flatten';
import { commandOf, emptyRecipe, faultsOf, quoted, specOf, type Recipe } from '@/model/recipe';

const base: Recipe = {
  ...emptyRecipe,
  model: 'smollm2',
  training_file: 'file-1',
};
const oneLine = (recipe: Recipe) => commandOf(recipe).replace(/ \\\n {2}/g, ' ');

describe('a recipe', () => {
  it('sends only what was chosen', () => {
    expect(specOf(base)).toEqual({
      model: 'smollm2',
      training_file: 'file-1',
      dex: { preset: 'auto' },
    });
    expect(oneLine(base)).toBe('dexctl jobs create --model smollm2 --training-file file-1 --preset auto');
  });
  it('says on the command line what it sends', () => {
    const recipe: Recipe = {
      ...base,
      preset: 'code',
      validation_file: 'file-2',
      suffix: 'py',
      name: 'It’s ours',
      epochs: '2',
      max_steps: '40',
      batch_size: '8',
      max_seq_length: '512',
      learning_rate: '1e-4',
      seed: '7',
      early_stopping: '3',
      base_guard: '0.5',
      promote: true,
      hold: true,
    };
    expect(specOf(recipe)).toEqual({
      model: 'smollm2',
      training_file: 'file-1',
      validation_file: 'file-2',
      suffix: 'py',
      display_name: 'It’s ours',
      seed: '7',
      dex: { preset: 'code' },
      hyperparameters: {
        n_epochs: 2,
        max_steps: 40,
        batch_size: 8,
        max_seq_length: 512,
        learning_rate: 1e-4,
      },
      early_stopping: { enabled: true, patience: 3 },
      watchdog: { base_guard: { kl_max: 0.5 } },
      gates: [{ task: 'held_out', metric: 'loss', op: 'OP_LE', threshold: 0 }],
      auto_start: false,
    });
    expect(oneLine(recipe)).toBe(
      "dexctl jobs create --model smollm2 --training-file file-1 --validation-file file-2 --preset code --suffix py --name 'It’s ours' --epochs 2 --max-steps 40 --batch-size 8 --max-seq-length 512 --learning-rate 1e-4 --seed 7 --early-stopping 3 --base-guard 0.5 --promote-if 'held_out.loss<=0' --hold",
    );
  });
  it('gives no preset to methods that have none', () => {
    expect(specOf({ ...base, method: 'lora', preset: 'code' })).toEqual({
      model: 'smollm2',
      training_file: 'file-1',
      lora: {},
    });
    expect(oneLine({ ...base, method: 'lora', preset: 'code' })).toBe(
      'dexctl jobs create --model smollm2 --training-file file-1 --method lora',
    );
    expect(specOf({ ...base, method: 'kvo_only', preset: 'code' })).toMatchObject({ kvo_only: { preset: 'code' } });
  });
  it('leaves the method to the adapter that it goes on from', () => {
    expect(specOf({ ...base, model: 'ft:smollm2:default:a:b' })).toEqual({
      model: 'ft:smollm2:default:a:b',
      training_file: 'file-1',
    });
  });
  it('says what is wrong before the server does', () => {
    expect(faultsOf(base)).toEqual([]);
    expect(faultsOf(emptyRecipe).map((fault) => fault.field)).toEqual(['model', 'training_file']);
    const wrong = faultsOf({
      ...base,
      suffix: 'a b',
      epochs: '0',
      batch_size: '1.5',
      learning_rate: 'fast',
      base_guard: '101',
      seed: '-1',
    });
    expect(wrong.map((fault) => fault.field)).toEqual(['suffix', 'epochs', 'batch_size', 'learning_rate', 'seed', 'base_guard']);
  });
  it('quotes for a shell', () => {
    expect(quoted('ft:a:b-1.0')).toBe('ft:a:b-1.0');
    expect(quoted("it's $HOME")).toBe("'it'\\''s $HOME'");
    expect(quoted('')).toBe("''");
  });
});

describe('a spec, flat', () => {
  it('names every value by its path', () => {
    expect(
      flatten({
        model: 'm',
        dex: { lambda: { end: 0.5 }, empty: {} },
        list: ['a', 'b'],
        none: [],
        gone: undefined,
        packing: false,
      }),
    ).toEqual([
      { path: 'model', value: 'm' },
      { path: 'dex.lambda.end', value: '0.5' },
      { path: 'list', value: 'a, b' },
      { path: 'packing', value: 'false' },
    ]);
  });
  it('takes the prefix off enum values only', () => {
    expect(plainValue('dex.lambda.schedule', 'SCHEDULE_PAPER_EQ4')).toBe('PAPER_EQ4');
    expect(plainValue('hyperparameters.lr_scheduler_type', 'LR_SCHEDULER_COSINE')).toBe('COSINE');
    expect(plainValue('suffix', 'my-suffix')).toBe('my-suffix');
  });
  it('tells own choices from the preset’s', () => {
    expect([isOwn('USER'), isOwn('CLAMPED'), isOwn('PRESET (paper)'), isOwn('AUTO'), isOwn(undefined)]).toEqual([
      true,
      true,
      false,
      false,
      false,
    ]);
  });
});
