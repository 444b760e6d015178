#pragma once

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/text/truncation.h"
#include "worker/evaluate/head_selection.h"
#include "worker/model/dex_options.h"
#include "worker/train/early_stopping.h"
#include "worker/train/gates.h"
#include "worker/train/learning_rate.h"
#include "worker/train/watchdog.h"

namespace dex::train {

struct Calibration {
  int32_t n_sequences = 8;
  int32_t seq_length = 512;
  int32_t skip_rows = 32;
};

// What rows are drawn by (group_sampling.h).
enum class GroupBy { kNone, kTag, kLanguage };

// The numbers of a training run; defaults are those of method.md §2.3 and api.md §3. An empty
// optional is chosen from the data or the machine (resolve.h).
struct Hyperparameters {
  std::optional<int64_t> n_epochs;
  int64_t max_steps = 0;  // 0: by epochs
  std::optional<int32_t> max_seq_length, batch_size, micro_batch_size;
  double learning_rate = 1e-4, branch_learning_rate = 1e-4, lambda_learning_rate = 1e-4;
  LrSchedule schedule = LrSchedule::kCosine;
  double warmup_ratio = 0.03, max_grad_norm = 1.0, weight_decay = 0;
  double adam_beta1 = 0.9, adam_beta2 = 0.999, adam_epsilon = 1e-8;
  bool packing = true;
  std::optional<bool> train_on_inputs;
  text::Truncation truncation = text::Truncation::kAuto;
  GroupBy group_by = GroupBy::kNone;
  std::map<std::string, double> group_weights;  // of groups that don't weigh 1
};

// λ's T before the number of updates is known.
struct Anneal {
  double fraction = 0.5;         // of N
  std::optional<int64_t> steps;  // wins over the fraction; clamped to N
};

struct CheckpointPolicy {
  std::optional<int64_t> every_steps;  // nothing: at each evaluation
  double every_seconds = 900;
  int32_t keep_last = 2;
  bool keep_best = true;
};

struct EvaluationPolicy {
  std::optional<int64_t> every_steps;  // nothing: ten a run
  int64_t max_tokens = 200000;
};

// KL to the base on a probe set, watched at evaluations (api.md §3).
struct BaseGuardPolicy {
  double kl_max = 0;  // nats a token; 0: off
  int64_t every_evals = 1;
  bool fails = true;  // above kl_max the job ends; else it warns
  [[nodiscard]] bool on() const { return kl_max > 0; }
};

// 1.8 M tokens of SmolLM2-135M.
inline constexpr int64_t kPrefixCacheBytes = int64_t{4} << 30;

// Of the processes that compute one attempt together (process_group.h).
struct Ranks {
  int32_t rank = 0, ranks = 1;
  std::filesystem::path rendezvous;  // with ranks > 1
  [[nodiscard]] bool several() const { return ranks > 1; }
  [[nodiscard]] bool follows() const { return rank > 0; }  // rank 0 says what is done
};
inline constexpr uint32_t kMostRanks = 64;

// One attempt of one job: what TrainerStart says (frames.proto), as plain values that have been
// checked one by one.
struct JobSpec {
  std::string job_id, model_name, preset;
  std::filesystem::path model_dir, training_path, validation_path, attempt_dir, checkpoint_dir;
  std::string checkpoint_manifest_sha256, training_sha256, validation_sha256, base_weights_sha256;
  int32_t attempt = 1, oom_retries = 0, threads = 0;
  Ranks ranks;
  std::string gemm = "auto";  // library of products (kernels/gemm.h): auto, libtorch, openblas
  // An adapter to go on from (warm_start.h); an empty folder: the base.
  std::string start_adapter, start_adapter_sha256;
  std::filesystem::path start_adapter_dir;
  [[nodiscard]] bool goes_on() const { return !start_adapter_dir.empty(); }

  model::DexOptions dex;  // lambda.anneal_steps is set from `anneal` once N is known
  Anneal anneal;
  evaluate::SelectionRule heads;
  Calibration calibration;
  int64_t reselect_every = 0;
  double mix_in_ratio = 0.3;  // of method diff: dex.second_map.mix_updates is set from it, likewise

  Hyperparameters hyperparameters;
  CheckpointPolicy checkpoints;
  EvaluationPolicy evaluation;
  EarlyStopping::Options early_stopping;
  Watchdog::Options watchdog;
  BaseGuardPolicy base_guard;
  std::filesystem::path probe_path;  // empty: the general text (general_text.h)
  std::string probe_sha256;
  std::filesystem::path calibration_path;  // rows on which heads are measured; empty: those trained
  std::string calibration_sha256;
  std::vector<Gate> gates;
  // Whether anything measures KL to the base.
  [[nodiscard]] bool needs_probe() const {
    return base_guard.on() || std::any_of(gates.begin(), gates.end(), [](const Gate& gate) {
             return gate.figure == Gate::Figure::kBaseKl;
           });
  }
  double validation_split = -1;  // < 0: auto
  double skip_budget_ratio = 0.01;
  uint64_t seed = 0;
  bool heads_only = false;  // choose heads, publish head_selection.json, and end
  bool probe_only = false;  // do one update on the longest rows, publish probe.json, and end
  bool hold = false;        // check everything, do that update, and end as paused

  // Where what frozen layers compute is kept (prefix_store.h), and its bound; empty or 0: nowhere.
  std::filesystem::path prefix_cache_dir;
  int64_t prefix_cache_bytes = kPrefixCacheBytes;
  std::string prefix_cache_owner;  // only jobs of the same one find its entries

  std::string spec_sha256;  // of the job's own message in deterministic form; a checkpoint of
                            // another spec is refused
};

}  // namespace dex::train
