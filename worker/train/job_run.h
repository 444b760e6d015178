#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/clock.h"
#include "services/base/file_layer.h"
#include "worker/evaluate/base_probe.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/model/adaptation.h"
#include "worker/model/adapter.h"
#include "worker/model/llama.h"
#include "worker/model/weights.h"
#include "worker/train/checkpoint.h"
#include "worker/train/controls.h"
#include "worker/train/data_plan.h"
#include "worker/train/dataset.h"
#include "worker/train/document_prefix.h"
#include "worker/train/metrics_file.h"
#include "worker/train/out_of_memory.h"
#include "worker/train/process_group.h"
#include "worker/train/rank_link.h"
#include "worker/train/report.h"
#include "worker/train/resolve.h"
#include "worker/train/selection.h"
#include "worker/train/spec.h"
#include "worker/train/training.h"
#include "worker/train/updater.h"

// Private to this room: what job.cc, job_gates.cc, job_heads.cc, job_memory.cc, job_prefix.cc,
// job_publish.cc and job_ranks.cc share.
namespace dex::train::detail {

inline constexpr int64_t kEvaluationBatchTokens = 512;  // as a micro-batch (performance.md §3)
inline constexpr int64_t kEffectTokens = 4096;          // at least, method.md §2.6

// The first documents up to `max_tokens` tokens together, at least one.
std::vector<evaluate::Document> first_documents(const std::vector<Example>& examples,
                                                int64_t max_tokens);
// The first documents of `least` tokens or more together, or all there are.
std::vector<evaluate::Document> enough_documents(const std::vector<Example>& examples,
                                                 int64_t least);

// A job's parts in the order in which they come to be. One attempt, one thread.
class Job {
 public:
  Job(const JobSpec& spec, Session& session, const base::Clock& clock, base::FileLayer& files)
      : spec_(spec),
        session_(session),
        clock_(clock),
        files_(files),
        controls_(session),
        metrics_(spec.attempt_dir / "metrics.jsonl") {}

  // Throws OutOfMemoryFailure, and tells the session, when an allocation fails.
  Published run();

 private:
  Published whole();  // run() without that
  // Tells the session; before training a stop ends the job here.
  void enter(Phase phase);
  void warn(const std::string& text);

  void load_model();
  void add_second_map();  // method diff: the base gets one, not yet mixed in
  int64_t added_parameters() const;
  void load_data();
  void plan();
  void make_prefix();  // where the lowest layers are frozen; before the first of in_batches()
  // Documents to evaluate on, with the prefix.
  std::vector<evaluate::SupervisedBatch> in_batches(
      const std::vector<evaluate::Document>& documents) const;
  void report_prefix();
  void select_heads();
  Published publish_heads();  // of a job that ends here
  Published publish_probe();  // likewise, after one update
  // The end of a job that is only checked, after one update: throws Stopped, as a pause does.
  [[noreturn]] void end_checked();
  MemoryProbe measure_update();  // one, on the longest rows
  // final/ with these files (name, content) and checksums.json.
  Published publish_files(const std::vector<std::pair<std::string, std::string>>& files);
  // What memory is used for just now, and the longest row there, in tokens.
  [[nodiscard]] MemoryPlace place() const;
  [[nodiscard]] int64_t longest_row() const;
  OutOfMemoryFailure report_out_of_memory();
  // Where something measures KL to the base: the base's side of it.
  void make_probe();
  [[nodiscard]] model::Adaptation base_adaptation() const;  // under which *llama_ is the base
  // A threshold rule that chose nothing for a job that trains nothing else, with better thresholds.
  void refuse_empty_selection() const;
  void prepare_weights();  // of the heads that are selected: adaptation, flat buffer, optimizer
  void prepare_training();
  void join_ranks();  // of a job with several
  void follow();      // the job of every rank but 0, from here to its end
  [[nodiscard]] RankPlan rank_plan() const;
  void advise_of_start();  // of a literal one: measured on the batches of the effect
  void resume();
  Published publish();
  // Fills in what gates found of the weights that are to be published. Throws Failure gate_failed
  // and base_guard_tripped.
  void judge_gates(Published& out);
  GateFigure figure_of(const Gate& gate, const evaluate::BranchEffect& effect);
  GateFigure held_out_figure(bool against_base);
  void report_complete();
  std::string metrics_json(const Published& published) const;
  void write_selection(const std::string& log) const;  // head_selection.json and its picture
  void report_effect(const evaluate::BranchEffect& effect);
  std::vector<evaluate::SupervisedBatch> effect_batches() const;

  JobSpec spec_;
  Session& session_;
  const base::Clock& clock_;
  base::FileLayer& files_;
  Controls controls_;
  MetricsFile metrics_;
  int64_t begin_ms_ = 0;
  MemoryPlace place_ = MemoryPlace::kBefore;  // outside training
  bool trains_ = false;                       // *training_ knows the place

  model::Config config_;
  model::Weights base_;
  int64_t base_parameters_ = 0;  // of the model as it was loaded
  std::unique_ptr<model::Llama> llama_;
  std::optional<model::Adapter> start_;  // gone on from; until its values are taken
  Identity identity_;
  Dataset data_;
  std::unique_ptr<DocumentPrefix> prefix_;  // null: every layer is computed
  std::vector<evaluate::SupervisedBatch> held_out_;
  Resolved resolved_;
  std::unique_ptr<DataPlan> plan_;
  Selection selection_;
  std::string selection_log_ = "[]";
  model::Adaptation adaptation_;
  std::unique_ptr<FlatParameters> parameters_;
  std::unique_ptr<AdamW> optimizer_;
  std::unique_ptr<CheckpointStore> checkpoints_;
  std::unique_ptr<ProcessGroup> group_;  // null: one rank
  std::unique_ptr<RankLeader> leader_;   // of rank 0 in it
  std::unique_ptr<evaluate::BaseProbe> probe_;
  std::unique_ptr<Training> training_;
  std::unique_ptr<Updater> lone_updater_;  // without a loop: of measure_update() and follow()
};

}  // namespace dex::train::detail
