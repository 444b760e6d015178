// What a job says when it runs out of memory, and the probe that finds out before: one update on
// the longest rows there are, of Estimate.METHOD_PROBE and of a job that is only checked.
#include <algorithm>
#include <cstddef>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "worker/train/host_memory.h"
#include "worker/train/job_run.h"
#include "worker/train/number_text.h"

namespace dex::train::detail {

using nlohmann::json;

namespace {

// OutOfMemory (events.proto).
std::string event_of(const OutOfMemory& out) {
  json data = {{"where", std::string("WHERE_") + name(out.where)},
               {"longestRowTokens", std::to_string(out.longest_row_tokens)},
               {"peakMemoryBytes", std::to_string(out.peak_memory_bytes)},
               {"microBatchSize", out.micro_batch_size},
               {"maxSeqLength", out.max_seq_length},
               {"step", out.step}};
  if (out.retry_micro_batch_size)
    data["retryWith"] = {{"hyperparameters.micro_batch_size", *out.retry_micro_batch_size}};
  return data.dump();
}

// MemoryProbe (events.proto).
std::string event_of(const MemoryProbe& probe) {
  const json data = {{"peakMemoryBytes", std::to_string(probe.peak_memory_bytes)},
                     {"stepSeconds", probe.step_seconds},
                     {"stepTokens", std::to_string(probe.step_tokens)},
                     {"longestRowTokens", std::to_string(probe.longest_row_tokens)},
                     {"microBatchSize", probe.micro_batch_size},
                     {"maxSeqLength", probe.max_seq_length},
                     {"totalSteps", std::to_string(probe.total_steps)}};
  return data.dump();
}

struct SizedPack {
  int64_t longest = 0, tokens = 0;
  Pack pack;
};

SizedPack sized(const Pack& pack, const std::vector<Example>& examples) {
  SizedPack out;
  for (const uint32_t index : pack) {
    const auto tokens = static_cast<int64_t>(examples[index].ids.size());
    out.longest = std::max(out.longest, tokens);
    out.tokens += tokens;
  }
  out.pack = pack;
  return out;
}

// Leaves the pack with the longest row, then the fullest ones, at most `most`.
void keep_largest(std::vector<SizedPack>& all, size_t most) {
  std::iter_swap(all.begin(), std::max_element(all.begin(), all.end(),
                                               [](const SizedPack& a, const SizedPack& b) {
                                                 return a.longest < b.longest;
                                               }));
  const auto count = static_cast<std::ptrdiff_t>(std::min(most, all.size()));
  std::partial_sort(all.begin() + 1, all.begin() + count, all.end(),
                    [](const SizedPack& a, const SizedPack& b) { return a.tokens > b.tokens; });
  all.resize(static_cast<size_t>(count));
}

// The largest packs of the first pass. Where rows are drawn by group a pass has not all of them, so
// that the longest may come in a later one: then of every pass.
std::vector<Pack> largest_packs(DataPlan& plan, const std::vector<Example>& examples, size_t most) {
  std::vector<SizedPack> all;
  for (int64_t u = 0; u < plan.updates(); ++u) {
    const DataPlan::Update update = plan.update(u);
    if (update.pass > 0 && !plan.groups()) break;
    for (const Pack& pack : update.packs) all.push_back(sized(pack, examples));
    if (update.ends_pass) keep_largest(all, most);
  }
  keep_largest(all, most);
  std::vector<Pack> packs;
  for (SizedPack& each : all) packs.push_back(std::move(each.pack));
  return packs;
}

}  // namespace

MemoryPlace Job::place() const {
  if (lone_updater_) return lone_updater_->place();
  return trains_ ? training_->place() : place_;
}

int64_t Job::longest_row() const {
  int64_t tokens = 0;
  if (lone_updater_) tokens = lone_updater_->longest_row();
  if (trains_) tokens = training_->longest_row();
  if (tokens > 0) return tokens;
  for (const Example& example : data_.train)
    tokens = std::max(tokens, static_cast<int64_t>(example.ids.size()));
  return tokens;
}

OutOfMemoryFailure Job::report_out_of_memory() {
  OutOfMemory out;
  out.where = place();
  out.longest_row_tokens = longest_row();
  out.peak_memory_bytes = peak_host_memory();
  out.micro_batch_size = resolved_.micro_batch_size;
  out.max_seq_length = resolved_.max_seq_length;
  if (training_) out.step = training_->state().step;
  // One more try (jobs.md §6); a probe answers for the setting that it was asked of.
  if (spec_.oom_retries == 0 && !spec_.probe_only && out.micro_batch_size > 1)
    out.retry_micro_batch_size = out.micro_batch_size / 2;

  std::string text = sentence(out);
  auto level = Event::Level::kWarn;
  if (out.retry_micro_batch_size) {
    text += "; the next attempt has micro_batch_size " +
            std::to_string(*out.retry_micro_batch_size) + " and the same batch_size";
  } else if (out.micro_batch_size > 0) {
    level = Event::Level::kError;
  }
  session_.event({level, "out_of_memory", text, event_of(out)});
  return OutOfMemoryFailure(out);
}

MemoryProbe Job::measure_update() {
  enter(Phase::kProbing);
  const auto batch = static_cast<size_t>(resolved_.batch_size);
  const std::vector<Pack> packs = largest_packs(*plan_, data_.train, batch);
  training_->set_branch(resolved_.updates);  // λ at its end: no branch may be left out for being 0
  lone_updater_ = std::make_unique<Updater>(
      *llama_, adaptation_, *parameters_, *optimizer_,
      Updater::Options{resolved_.micro_batch_size, spec_.hyperparameters.max_grad_norm, spec_.seed,
                       prefix_.get()});
  const int64_t begin_ms = clock_.steady_ms();
  const Updater::Gradients gradients =
      lone_updater_->accumulate(0, packs, data_.train, [this] { controls_.stop_here(); });
  lone_updater_->apply(gradients, AdamW::Rates{});
  MemoryProbe probe;
  probe.step_seconds = clock_.seconds_since(begin_ms);
  probe.peak_memory_bytes = peak_host_memory();
  probe.step_tokens = gradients.tokens;
  probe.longest_row_tokens = sized(packs.front(), data_.train).longest;
  probe.micro_batch_size = resolved_.micro_batch_size;
  probe.max_seq_length = resolved_.max_seq_length;
  probe.total_steps = resolved_.updates;
  return probe;
}

void Job::end_checked() {
  const MemoryProbe probe = measure_update();
  session_.event({Event::Level::kInfo, "estimate_updated",
                  "checked: an update on the longest rows took " + number_text(probe.step_seconds) +
                      " s, the process " + std::to_string(probe.peak_memory_bytes >> 20) +
                      " MiB; the job has " + std::to_string(probe.total_steps) + " updates",
                  event_of(probe)});
  throw Stopped(StopReason::kPause, "checked, ready to start");
}

Published Job::publish_probe() {
  const MemoryProbe probe = measure_update();
  enter(Phase::kFinalizing);
  const json report = {{"peak_memory_bytes", probe.peak_memory_bytes},
                       {"step_seconds", probe.step_seconds},
                       {"step_tokens", probe.step_tokens},
                       {"longest_row_tokens", probe.longest_row_tokens},
                       {"micro_batch_size", probe.micro_batch_size},
                       {"max_seq_length", probe.max_seq_length},
                       {"total_steps", probe.total_steps}};
  Published out = publish_files({{"probe.json", report.dump(1) + "\n"}});
  out.memory_probe = probe;
  return out;
}

}  // namespace dex::train::detail
