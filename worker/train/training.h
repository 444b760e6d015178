#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "worker/evaluate/base_probe.h"
#include "worker/evaluate/branch_effect.h"
#include "worker/evaluate/held_out_loss.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/model/llama.h"
#include "worker/train/adamw.h"
#include "worker/train/advice.h"
#include "worker/train/checkpoint.h"
#include "worker/train/controls.h"
#include "worker/train/data_plan.h"
#include "worker/train/flat_parameters.h"
#include "worker/train/head_masks.h"
#include "worker/train/metrics_file.h"
#include "worker/train/out_of_memory.h"
#include "worker/train/rank_link.h"
#include "worker/train/report.h"
#include "worker/train/resolve.h"
#include "worker/train/row_report.h"
#include "worker/train/speed.h"
#include "worker/train/train_state.h"
#include "worker/train/updater.h"

namespace dex::train {

// A checkpoint that the watchdog may go back to; of one that was resumed from, the folder's name is
// whoever's who gave it.
struct WayBack {
  std::filesystem::path path;
  int64_t step = 0;
};

// The loop: updates, evaluations, checkpoints, re-selection, watchdog, reports. Between two updates
// ("boundary") the whole job is TrainState plus the tensors that a checkpoint holds; what happens
// in an update is a function of these and of the spec, so a resumed job gives the same bits. One
// thread.
class Training {
 public:
  // Made by the job, all outlive this object.
  struct Parts {
    const JobSpec& spec;
    const Resolved& resolved;
    const model::Llama& llama;
    model::Adaptation& adaptation;
    FlatParameters& parameters;
    AdamW& optimizer;
    DataPlan& plan;
    const std::vector<Example>& examples;
    const std::vector<Example>& measured;                 // for re-selections of heads
    std::span<const evaluate::SupervisedBatch> held_out;  // may be empty: no evaluation
    CheckpointStore& checkpoints;
    const Identity& identity;
    Session& session;
    Controls& controls;
    MetricsFile& metrics;
    const base::Clock& clock;
    const evaluate::BaseProbe* probe = nullptr;   // null: nothing measures KL to the base
    const model::FrozenPrefix* prefix = nullptr;  // of training batches; null: none
    RankLeader* leader = nullptr;  // of several ranks, where this is rank 0; null: alone
    std::span<const HeldOutRow> held_out_rows = {};  // of the documents of held_out, and maybe more
  };
  explicit Training(const Parts& parts);

  // Where the job starts: heads as selected, or the state of a checkpoint whose tensors are in
  // place already. `from`: the checkpoint resumed from, to roll back to until this attempt has its
  // own.
  void begin(const evaluate::HeadSets& heads, const std::string& selection_report);
  // `best_values`: as in LoadedCheckpoint.
  void resume(TrainState state, const at::Tensor& best_values, const std::filesystem::path& from);

  // Runs to the last update and its evaluation and checkpoint, or until early stopping ends it.
  // Throws Stopped after a pause or drain (checkpoint written), Failure for everything that ends
  // the attempt otherwise.
  void run();

  // Puts in place what is to be published: the best weights with their masks, where early stopping
  // keeps them apart, else the last ones. After run(), once; λ is then that of served_step().
  void choose_published();
  int64_t served_step() const { return served_step_.value_or(state_.step); }  // n of method.md §1

  // What run() was doing with memory when it ended or threw, and the longest row of the micro-batch
  // that was computed; 0: none was.
  MemoryPlace place() const { return evaluating_ ? MemoryPlace::kEvaluation : updater_.place(); }
  int64_t longest_row() const { return evaluating_ ? 0 : updater_.longest_row(); }

  const TrainState& state() const { return state_; }
  const Speed& speed() const { return speed_; }
  // KL to the base of what is published; after choose_published() and with λ and masks of
  // served_step(). Measured now unless the last evaluation was of these weights. Needs a probe.
  // Throws Failure base_guard_tripped.
  const evaluate::BaseDivergence& served_divergence();
  // Sets λ and masks to those of update t, as set_lambda does.
  void set_branch(int64_t t);
  void advise(const std::optional<Advice>& advice);  // each topic once a job

 private:
  // A stop came in the middle of an evaluation: it is given up and repeated after the resume.
  struct EvaluationInterrupted {};

  void boundary();
  void update();
  void judge(const Watchdog::Verdict& verdict);
  // The checkpoint to go back to after this verdict; nothing: there is none.
  const std::optional<WayBack>& way_back(const Watchdog::Verdict& verdict) const;
  void roll_back(const std::filesystem::path& checkpoint);
  void reselect();
  void evaluate();
  void record_evaluation(const evaluate::HeldOut& held_out, const evaluate::BranchEffect& effect);
  void report_rows(const evaluate::HeldOut& held_out);  // group_loss and worst_rows, where due
  void report_early_stop();
  bool guard_due() const;
  // Says it and ends the job where it is above the limit (Failure base_guard_tripped).
  void take_divergence(evaluate::BaseDivergence found, int64_t step);
  // Follows early stopping where it judges, else takes the evaluation's loss if it is the lowest.
  void take_best(std::optional<double> loss);
  bool is_best() const;  // the weights as they are now
  // Whether the second map of method diff is mixed in whole; without one it is.
  bool mixed_in() const { return parts_.adaptation.mix == 1; }
  void save(const std::string& request);
  void write_checkpoint();
  void offer_checkpoint(const std::string& request);  // the newest one, to the session
  void report_update(const Updater::Gradients& gradients, const DataPlan::Update& data,
                     double seconds);
  void end_pass(const DataPlan::Update& data);
  Progress progress() const;
  bool evaluation_due() const;
  bool checkpoint_due() const;
  AdamW::Rates rates() const;
  double lambda_mean() const;

  Parts parts_;
  Updater updater_;
  Watchdog watchdog_;
  EarlyStopping early_;
  at::Tensor best_values_;  // flat, of state_.early.best_step; undefined: not kept, or none yet
  std::optional<int64_t> served_step_;
  std::optional<evaluate::BaseDivergence> divergence_;  // the latest, of the weights of that step
  int64_t divergence_step_ = -1;
  std::optional<HeadMasks> masks_;
  TrainState state_;
  bool evaluating_ = false;  // or choosing heads again: a pass that trains nothing
  Speed speed_;
  Progress figures_;  // the latest, of the last update
  // The newest, and the newest that was saved while no loss lay above the watchdog's limit: what
  // comes after that one may have diverged already.
  std::optional<WayBack> last_checkpoint_, calm_checkpoint_;
  int64_t saved_step_ = -1, saved_ms_ = 0;
};

}  // namespace dex::train
