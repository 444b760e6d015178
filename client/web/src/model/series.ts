import type { FineTuningEvent } from '@/api/types';
import { num } from './format';

// Numbers that only grow at their end. 100,000 of them cost 0.8 MB and no garbage.
export class Column {
  private data = new Float64Array(256);
  length = 0;

  push(value: number) {
    if (this.length === this.data.length) {
      const larger = new Float64Array(this.data.length * 2);
      larger.set(this.data);
      this.data = larger;
    }
    this.data[this.length++] = value;
  }
  truncate(length: number) {
    this.length = Math.min(length, this.length);
  }
  // Valid until the next push.
  view(): Float64Array {
    return this.data.subarray(0, this.length);
  }
  last(): number {
    return this.length > 0 ? this.data[this.length - 1]! : NaN;
  }
}

// First index whose value is ≥ x, in rising numbers.
export function lowerBound(values: Float64Array, x: number): number {
  let low = 0;
  let high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle]! < x) low = middle + 1;
    else high = middle;
  }
  return low;
}

export interface LayerRow {
  step: number;
  lambda: number[]; // by layer
  branch_ratio: number[]; // NaN: no selected head in the layer
}

export interface Mark {
  step: number;
  kind: 'checkpoint' | 'best' | 'warning' | 'restart' | 'stopped';
  text: string;
}

// The curves of a job, from its events in their order. Where an attempt goes on from a checkpoint, or training was rolled
// back, what came after that step is replaced by what comes now.
export class JobSeries {
  readonly step = new Column();
  readonly train_loss = new Column();
  readonly grad_norm = new Column();
  readonly learning_rate = new Column();
  readonly tokens_per_second = new Column();
  readonly lambda_mean = new Column();
  readonly eval_step = new Column();
  readonly valid_loss = new Column();
  readonly branch_ratio = new Column();
  layers: LayerRow[] = [];
  marks: Mark[] = [];
  version = 0; // changes with every change

  private cutPoints(step: number) {
    const keep = lowerBound(this.step.view(), step);
    for (const column of [this.step, this.train_loss, this.grad_norm, this.learning_rate, this.tokens_per_second, this.lambda_mean]) {
      column.truncate(keep);
    }
    this.layers = this.layers.filter((row) => row.step < step);
  }

  private rewind(step: number) {
    this.cutPoints(step);
    const keepEvals = lowerBound(this.eval_step.view(), step);
    for (const column of [this.eval_step, this.valid_loss, this.branch_ratio]) column.truncate(keepEvals);
  }

  add(event: FineTuningEvent) {
    this.version++;
    if (event.metrics) {
      const m = event.metrics;
      // After an evaluation the trainer tells the same update once more, with its layers: that replaces the point alone.
      if (this.step.length > 0 && m.step < this.step.last()) this.rewind(m.step);
      else if (m.step === this.step.last()) this.cutPoints(m.step);
      this.step.push(m.step);
      this.train_loss.push(num(m.train_loss));
      this.grad_norm.push(num(m.grad_norm));
      this.learning_rate.push(num(m.learning_rate));
      this.tokens_per_second.push(num(m.tokens_per_second));
      this.lambda_mean.push(num(m.lambda_mean));
      if (m.lambda.length > 0 || m.branch_ratio.length > 0) {
        this.layers.push({ step: m.step, lambda: m.lambda.map(num), branch_ratio: m.branch_ratio.map(num) });
      }
    } else if (event.eval_complete) {
      const e = event.eval_complete;
      if (this.eval_step.length > 0 && e.step <= this.eval_step.last()) {
        const keep = lowerBound(this.eval_step.view(), e.step);
        for (const column of [this.eval_step, this.valid_loss, this.branch_ratio]) column.truncate(keep);
      }
      this.eval_step.push(e.step);
      this.valid_loss.push(num(e.valid_loss));
      this.branch_ratio.push(num(e.branch_ratio));
    } else if (event.checkpoint_save) {
      const c = event.checkpoint_save;
      this.mark(
        c.step,
        c.is_best ? 'best' : 'checkpoint',
        c.is_best ? `checkpoint ${c.checkpoint}, best so far` : `checkpoint ${c.checkpoint}`,
      );
    } else if (event.watchdog) {
      this.mark(event.watchdog.step, 'warning', `watchdog: ${event.watchdog.kind}, ${event.watchdog.action}`);
    } else if (event.job_restarted) {
      this.mark(
        Math.max(0, num(this.step.last()) || 0),
        'restart',
        `attempt ${event.job_restarted.attempt}: ${event.job_restarted.reason}`,
      );
    } else if (event.early_stopped) {
      this.mark(event.early_stopped.step, 'stopped', `early stop; best after ${event.early_stopped.best_step} updates`);
    }
  }

  private mark(step: number, kind: Mark['kind'], text: string) {
    this.marks.push({ step, kind, text });
  }
}
