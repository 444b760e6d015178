import type { Recipe } from '@/model/recipe';
import { Check, TextInput } from '@/ui/form';

// What a job is called, how long it trains, when it stops and what counts as good. Empty: the preset's, or from the data.
export function RecipeOptions({
  recipe,
  set,
  fault,
}: {
  recipe: Recipe;
  set: (change: Partial<Recipe>) => void;
  fault: (field: keyof Recipe) => string | undefined;
}) {
  return (
    <div class="stack">
      <div class="grid">
        <TextInput label="Name, for people" value={recipe.name} onValue={(name) => set({ name })} placeholder="Support answers, spring" />
        <TextInput
          label="Suffix of the adapter’s id"
          value={recipe.suffix}
          onValue={(suffix) => set({ suffix })}
          fault={fault('suffix')}
          hint="Letters, digits, dots and hyphens."
          placeholder="support-v2"
        />
      </div>
      <details class="more">
        <summary>How long and how fast it trains</summary>
        <div class="grid">
          <TextInput
            label="Passes over the data"
            inputMode="numeric"
            value={recipe.epochs}
            onValue={(epochs) => set({ epochs })}
            fault={fault('epochs')}
            placeholder="the preset’s"
          />
          <TextInput
            label="Or a number of updates"
            inputMode="numeric"
            value={recipe.max_steps}
            onValue={(max_steps) => set({ max_steps })}
            fault={fault('max_steps')}
            placeholder="by passes"
          />
          <TextInput
            label="Rows an update"
            inputMode="numeric"
            value={recipe.batch_size}
            onValue={(batch_size) => set({ batch_size })}
            fault={fault('batch_size')}
            placeholder="from your data"
          />
          <TextInput
            label="Tokens a row, at most"
            inputMode="numeric"
            value={recipe.max_seq_length}
            onValue={(max_seq_length) => set({ max_seq_length })}
            fault={fault('max_seq_length')}
            placeholder="from your data"
          />
          <TextInput
            label="Learning rate"
            inputMode="decimal"
            value={recipe.learning_rate}
            onValue={(learning_rate) => set({ learning_rate })}
            fault={fault('learning_rate')}
            placeholder="the preset’s"
          />
          <TextInput
            label="Seed"
            inputMode="numeric"
            value={recipe.seed}
            onValue={(seed) => set({ seed })}
            fault={fault('seed')}
            placeholder="drawn, and stored"
            hint="Same seed, same result."
          />
        </div>
      </details>
      <details class="more">
        <summary>Safety: when to stop, and what counts as good</summary>
        <div class="stack tight">
          <div class="grid">
            <TextInput
              label="Stop early after so many evaluations without a gain"
              inputMode="numeric"
              value={recipe.early_stopping}
              onValue={(early_stopping) => set({ early_stopping })}
              fault={fault('early_stopping')}
              placeholder="never"
            />
            <TextInput
              label="Stop when it drifts from its base by (KL, nats)"
              inputMode="decimal"
              value={recipe.base_guard}
              onValue={(base_guard) => set({ base_guard })}
              fault={fault('base_guard')}
              placeholder="no limit"
              hint="0.5 is a sensible limit."
            />
          </div>
          <Check
            label="Promote it only if it is surely not worse than its base"
            hint="On held-out rows, by the pessimistic end of a 95 % interval."
            checked={recipe.promote}
            onChecked={(promote) => set({ promote })}
          />
          <Check
            label="Let a worker check it first, then wait for me"
            hint="Every row with the tokenizer, and one update on the longest ones. Then it is paused until you start it."
            checked={recipe.hold}
            onChecked={(hold) => set({ hold })}
          />
        </div>
      </details>
    </div>
  );
}
