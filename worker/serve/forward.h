#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "worker/kernels/linear.h"
#include "worker/kernels/linear_int4.h"
#include "worker/kernels/linear_panels.h"
#include "worker/kernels/paged_attention.h"
#include "worker/kernels/thread_pool.h"
#include "worker/serve/activation_extremes.h"
#include "worker/serve/branch.h"
#include "worker/serve/kv_pool.h"
#include "worker/serve/serving_model.h"

namespace dex::serve {

// What one row's attention falls on, measured while it is computed (method.md §9.2): its logits are
// in the KV cache, so no map is made.
struct AttentionProbe {
  int32_t position = 0;            // the row's, one of its segment's tokens
  std::span<const uint8_t> parts;  // of positions 0 … position: which share they belong to
  // By part, as many as `parts` names: mean over layers and heads of the row's weights there, all
  // together 1. Written by run().
  std::span<double> shares;
};

// Consecutive tokens of one sequence. Everything before `first` has its K and V in `blocks`
// already.
struct Segment {
  const ServingAdapter* adapter = nullptr;  // null: the base
  std::span<const int32_t> blocks;  // of the KV pool, by position / 16; room for all of `tokens`
  int32_t first = 0;                // position of tokens[0]
  std::span<const int32_t> tokens;
  BranchState* branch_state = nullptr;  // of the sequence; for adapters that keep one
  const AttentionProbe* probe = nullptr;
  // Times every λ of the adapter's branch, which is apart if this is not 1 (serving_model.h). 0:
  // the branch is not computed at all.
  float lambda_scale = 1;
};

// The forward pass of a decoder of any of model/families.h over paged KV, batched over sequences
// and adapters (performance.md §6). fp32 activations; weights as stored. Segments of one adapter
// are best neighbours: their rows then share a product. Which kernel computes a row is the caller's
// choice, so that a reply does not depend on what else is in the batch:
//   kFew   generating: a row each; weights are streamed once for all rows
//   kMany  prompts: tiles of 32 rows
// Weights in panels or in four bits have one kernel for both.
// No allocation after the first calls. Not thread-safe; the step loop owns it.
class Forward {
 public:
  enum class Kernel { kFew, kMany };

  // All three outlive this object. `max_rows` of one run.
  Forward(const ServingModel& model, KvPool& pool, kernels::ThreadPool& threads, int64_t max_rows);

  // Runs all rows and writes their K and V. Throws "[forward] …" for a token outside the
  // vocabulary, a position beyond the model's, too many rows, or a branch state of other tokens
  // than those before the segment; then nothing was written.
  void run(std::span<const Segment> segments, Kernel kernel);

  // Logits [rows.size(), V] of rows of the last run, counted over all its segments.
  void logits(std::span<const int32_t> rows, Kernel kernel, float* out);

  // Raises `extremes` by what run() computes from now on; null: by nothing any more. What is
  // computed stays the same to the bit. It outlives its watch.
  void watch(ActivationExtremes* extremes);

  // Whether maps of this model, or of it with `adapter` (null: none) at this scale of λ, have
  // weights below 0: those of differential models and of the form uniform_map. A probe then
  // measures |M|, each row divided by its sum.
  [[nodiscard]] bool has_signed_maps(const ServingAdapter* adapter, float lambda_scale) const;

 private:
  struct Row {
    const Segment* segment;
    int32_t position;
  };
  struct Group {  // neighbouring rows of one adapter
    const ServingAdapter* adapter;
    int64_t begin, end;
    int64_t packed;  // its first row in packed_, a multiple of a tile
  };
  // Rows [begin, end) times one weight; the region's tasks are slices of its outputs.
  struct Job {
    const WeightView* weight;
    const WeightView* bias;
    int64_t begin, end;
    // Row `begin`, or of kMany its tiles, which weights in four bits or in panels do not read.
    const float* in;
    float* out;  // row 0
    kernels::Store store;
    Kernel kernel;
    const WeightView* up = nullptr;  // set: out = silu(weight·in)·(up·in)
    const WeightView* up_bias = nullptr;
  };

  void check(std::span<const Segment> segments) const;
  void place(std::span<const Segment> segments);
  void begin_branches(std::span<const Segment> segments);
  void normalise(const WeightView& weight);
  void prepare(const float* in, int64_t columns);  // the input of the next products
  [[nodiscard]] int64_t packed_tiles() const;
  void pack();      // … as linear_many reads it
  void quantize();  // … as linear_int4 reads it
  void add(const WeightView& weight, const WeightView& bias, float* out, kernels::Store store);
  void add_changed(int64_t layer, WeightView LayerView::*weight, WeightView LayerOverride::*change,
                   WeightView LayerView::*bias, WeightView LayerOverride::*bias_change, float* out,
                   kernels::Store store);
  void add_job(int64_t begin, int64_t end, int64_t packed, const WeightView& weight,
               const WeightView& bias, float* out, kernels::Store store);
  // LoRA terms (forward_baselines.cc): a region's first products and their second halves.
  [[nodiscard]] bool has_term(int64_t layer, model::Linear linear) const;
  void add_terms(int64_t layer, model::Linear linear, float* out);  // of the groups that have one
  // Bottleneck adapters: products into x go aside for groups whose adapter reads them first, then
  // x += h + up(act(down(h))).
  [[nodiscard]] bool has_adapter(int64_t layer, BottleneckView LayerOverride::*place) const;
  void set_aside(int64_t layer, BottleneckView LayerOverride::*place);
  void adapt(int64_t layer, BottleneckView LayerOverride::*place);
  void multiply();  // all jobs, in one region, then what is added to their results in a second
  void run_jobs(const std::vector<Job>& jobs);
  void share_slices();  // slices_ over ranges_, about as many weights for each
  void slice(const Job& job, int64_t begin, int64_t end, int thread);
  void product(const Job& job, const WeightView& weight, const WeightView& bias, float* out,
               kernels::Store store, int64_t begin, int64_t end, int thread);
  void attend_few(int64_t layer);
  void attend_many(int64_t layer);
  void place_head(const WeightView& norm, int32_t position, float* head) const;
  void rotate_and_store(int64_t layer, int64_t row, int64_t kv_head);
  // The queries of rows [first, first + count) that read one key head.
  void tile(int64_t layer, int64_t first, int64_t count, int64_t kv_head, int thread);
  // The same with the values of a head of choice; query head h of row r goes to
  // out + (r·query_heads + h)·stride.
  void attend(int64_t layer, int64_t first, int64_t count, int64_t kv_head, int64_t value_head,
              float* out, int64_t stride, int thread);
  // Differential models (forward_differential.cc): what a key head's maps mix goes to maps_, then
  // each row's heads are subtracted into o_.
  void tile_maps(int64_t layer, int64_t first, int64_t count, int64_t kv_head, int thread);
  void subtract(const LayerView& layer, int64_t row);
  void subtract_wide(const LayerView& layer, int64_t row);
  // Of the heads that read key head `kv_head`, the i-th; and which key head a query head reads.
  [[nodiscard]] int64_t query_head(int64_t kv_head, int64_t i) const;
  [[nodiscard]] int64_t key_head(int64_t head) const;
  // Extremes (forward_extremes.cc): behind a layer, and behind the last one.
  void note_hidden();
  void note_run();
  // Probes (forward_attention.cc), after the attention of `layer`.
  void probe_rows(int64_t layer);
  void probe_row(int64_t layer, int64_t row);
  // M of one row and head over positions 0 … its own, as it acts on the values: with the second map
  // taken off, with uniform_map's constant.
  [[nodiscard]] std::vector<double> map_row(int64_t layer, int64_t row, int64_t head) const;
  [[nodiscard]] std::vector<double> softmax_row(int64_t layer, int64_t row, int64_t head) const;

  const ServingModel& model_;
  const model::Config& config_;
  KvPool& pool_;
  kernels::ThreadPool& threads_;
  int64_t max_rows_;
  Kernel kernel_ = Kernel::kFew;

  BranchPass branches_;
  std::vector<BranchSegment> branch_segments_;
  std::vector<Row> rows_;
  std::vector<Group> groups_;
  std::vector<std::pair<int64_t, int64_t>> tiles_;  // first row and rows of an attention tile
  std::vector<Job> jobs_;
  std::vector<Job> after_;               // of results of jobs_: the second halves of LoRA terms
  std::vector<std::vector<float>> low_;  // x·aᵀ of each term of after_
  std::vector<float> aside_, narrow_;    // h and act(down(h)) of bottleneck adapters
  struct Slice {
    const Job* job;
    int64_t begin, end;
  };
  std::vector<Slice> slices_;
  // The slices of one thread, neighbours in memory; others help when theirs are done.
  struct alignas(64) Range {
    std::atomic<size_t> next;
    size_t end;
  };
  std::vector<Range> ranges_;  // a thread
  const float* in_ = nullptr;  // what prepare() was given
  int64_t in_columns_ = 0;
  std::vector<kernels::Int8Group> quantized_;  // its rows, where weights are in four bits
  std::vector<float> x_, normed_, q_, k_, v_, o_, gate_, up_, packed_;
  // Of a differential model: each map's result, [rows, query_heads, d] or DiffLlama's [rows, H,
  // 2d]; X·W_λᵀ of V2, [rows, H].
  std::vector<float> maps_, lambda_;
  std::vector<std::vector<float>> scratch_;           // a thread
  std::vector<kernels::AttentionScratch> attention_;  // a thread
  ActivationExtremes* extremes_ = nullptr;
  std::vector<float> largest_logits_;  // a thread, since watch()
};

}  // namespace dex::serve
