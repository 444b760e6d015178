#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/kernels/thread_pool.h"
#include "worker/kernels/weight_view.h"
#include "worker/model/config.h"
#include "worker/model/dex_options.h"

namespace dex::serve {

// A layer's branch as it is computed on each token: where it can't be folded into W_O (method.md
// §3.6), or shall not be, because requests scale its λ.
// Weights are fp32 and lie as Linear weights do, outputs first.
struct LayerBranch {
  std::vector<float> strength;  // [H] s·λ·m_h; 0: a head that passes untouched. Empty: no branch
  std::vector<float> gate;      // [H]; empty where the form has none
  // P, where it is linear: [d, d] shared · [H·d, d] per head · [H·d, H·d] dense
  kernels::WeightView map;
  // An activated bottleneck: down [m, d] · [H·m, d] · [m, H·d], up [d, m] · [H·d, m] · [H·d, m]
  kernels::WeightView down, up;
};

// The branches of all layers of an adapter. The weights' owner outlives it.
struct UnfoldedBranch {
  model::DexOptions options;
  std::vector<LayerBranch> layers;
};

// What a sequence carries for a form that keeps state: for each layer the sum over its tokens so
// far of O [H·d] (prefix_mean) or V [K·d] (uniform_map), fp32. Lives with the sequence; a run that
// begins at position 0 starts it anew, so a sequence that was sent back needs no care.
struct BranchState {
  int32_t tokens = 0;       // that the sums hold
  std::vector<float> sums;  // [L, H·d] or [L, K·d]; empty before the first run
};

// Consecutive rows of one sequence whose adapter has an unfolded branch.
struct BranchSegment {
  const UnfoldedBranch* branch = nullptr;
  BranchState* state = nullptr;  // null: the form keeps none
  int32_t position = 0;          // of the first row
  int64_t row = 0;               // of the run's rows, the first one
  int64_t rows = 0;
  float lambda_scale = 1;  // times λ, of these rows; not 0: such rows have no segment
};

// Adds s·λ·m_h·D_h to the attention output of such rows, in fp32, λ times each segment's scale; D
// does not depend on it, so segments of different scales share products and sums. What a row gets
// depends on the rows of its own sequence only, and not on how they are cut into runs: products go
// through linear_few, sums run token by token. One thread calls; it shares the work with the pool.
class BranchPass {
 public:
  // Both outlive this object.
  BranchPass(const model::Config& config, kernels::ThreadPool& threads);

  // The segments of a run, by row; neighbours of one adapter share a product. Throws
  // "[forward] …" when a state does not end where its segment begins; then nothing was changed.
  void begin(std::span<const BranchSegment> segments);
  [[nodiscard]] bool empty() const { return segments_.empty(); }
  // After the attention of `layer`: o [rows, H·d] of the whole run, v [rows, K·d].
  void apply(int64_t layer, float* o, const float* v);
  // All layers are done: the states hold their segments' tokens.
  void finish();

 private:
  struct Group {  // neighbouring segments of one adapter
    const UnfoldedBranch* branch;
    size_t first, last;  // segments
    int64_t row, rows;
  };
  // Query heads [first, first + count) take the gated mean of one source: a head of O or of V.
  struct MeanOf {
    int64_t first, count;
    float gate_sign;  // −1: subtracted
    int64_t source, sources;
  };

  [[nodiscard]] int64_t state_size(const UnfoldedBranch& branch) const;
  [[nodiscard]] int64_t inner_width(const UnfoldedBranch& branch) const;
  void shrink(int64_t layer, const float* o);
  void differences(const Group& group, int64_t layer, int64_t kv_head, const float* o,
                   const float* v);
  void project(const Group& group, const LayerBranch& branch, int64_t head, const float* o);
  void subtract_head_mean(const Group& group, int64_t head, float gate, const float* o);
  void add_running_mean(const Group& group, const LayerBranch& branch, int64_t layer,
                        const MeanOf& mean, const float* x);

  const model::Config& config_;
  kernels::ThreadPool& threads_;
  std::vector<BranchSegment> segments_;
  std::vector<Group> groups_;
  std::vector<float> inner_;  // [rows, inner_columns_], of which H·m or m: a bottleneck's middle
  int64_t inner_columns_ = 0;
  std::vector<float> delta_;  // [rows, H·d]: D_h
};

}  // namespace dex::serve
