#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/model/baselines.h"
#include "worker/model/config.h"

namespace dex::model {

// The options of method.md §3 (and, through `train`, of the baselines of §7), as plain values; each
// enum holds what this worker computes and no more. The form `dense` of a spec is kPaper with
// projection kDense and sign kPlus (§3.1).
enum class Form { kNone, kPaper, kHeadMean, kPrefixMean, kUniformMap };  // §3.1
enum class Projection { kShared, kPerHead, kDense, kBottleneck };        // §3.2
enum class BottleneckScope { kShared, kPerHead, kDense };
enum class Activation { kNone, kSilu, kGelu };  // of a bottleneck; gelu is the exact one (erf)
enum class Sign { kMinus, kPlus };
// What is trained: §3.5, and the baselines of §7 with form none.
enum class Train {
  kKvoDex,
  kDexOnly,
  kKvoOnly,
  kLoraDex,
  kFullDex,
  kLora,
  kAdapter,
  kFull,
  kDiffAttention,  // method diff (§8.4): all of self_attn, with a second map
  kDiffAll,        // the same: everything
};
enum class Start { kIdentity, kLiteral };   // §3.5
enum class BranchInit { kZeros, kLinear };  // §2.3: of w_d; a bottleneck has its own start
enum class Schedule { kPaperEq4, kSeedCosine, kConstant, kLearned };  // §3.3

// λ as a function of the number of updates done.
struct LambdaOptions {
  Schedule schedule = Schedule::kPaperEq4;
  int64_t anneal_steps = 0;    // T
  std::optional<double> init;  // paper_eq4: λ_init of every layer; nothing: by depth (§2.2)
  double learn_init = 0;       // start of λ_learn: paper_eq4, learned
  double start = 0, end = 0;   // seed_cosine
  double value = 0;            // constant
};

// What a way of training changes in a base model: the one table that a method is known by. All that
// follows (start, trained set, artefact, folding, serving) asks for these parts, never for the
// method.
struct Parts {
  // Of the base, replaced by trained copies.
  enum class Weights { kNone, kKvo, kAttention, kAll };
  Weights weights = Weights::kNone;
  bool branch = false, lora = false, adapter = false, second_map = false;  // added to it
};
Parts parts_of(Train train);

// Whether a weight of the base, by its Hugging Face name, is trained.
bool trains_weight(Train train, std::string_view name);

// The method of api.md §3 that a Train belongs to: "dex", "kvo_only", "lora", "adapter", "full",
// "diff".
std::string_view method_name(Train train);

// The peak rate of the base's weights, LoRA and adapters where nobody gives one (§2.3, §7).
double usual_learning_rate(Train train);

// Method diff (§8.4): the second map of second_map.h and how it is mixed in.
struct SecondMapOptions {
  enum class Version { kV1, kV2 };
  enum class Init { kZero, kMirror };
  Version version = Version::kV2;
  Init init = Init::kZero;
  double mix_updates = 0;  // mix_in_ratio·N; mix(t) = min(1, t / mix_updates), 1 where it is 0
};
double mix_at(const SecondMapOptions& options, int64_t t);

struct DexOptions {
  Form form = Form::kPaper;
  Projection projection = Projection::kShared;
  BottleneckScope bottleneck_scope = BottleneckScope::kPerHead;
  Activation bottleneck_activation = Activation::kNone;
  double width_ratio = 1.5;  // bottleneck: m = round(width_ratio·w), w the width that it projects
  Sign sign = Sign::kMinus;
  Train train = Train::kKvoDex;
  Start start = Start::kIdentity;
  BranchInit w_d_init = BranchInit::kZeros;
  double soft_floor = 0;                // m_h of heads that are not selected, 0 … 0.5 (§3.4)
  bool allow_large_projection = false;  // a branch above base::kLargeBranch (§3.6)
  LambdaOptions lambda;
  LoraOptions lora;                  // with has_lora()
  BottleneckAdapterOptions adapter;  // with has_adapter()
  SecondMapOptions second_map;       // with has_second_map()

  [[nodiscard]] bool has_branch() const { return form != Form::kNone; }
  [[nodiscard]] bool trains_kvo() const { return parts_of(train).weights == Parts::Weights::kKvo; }
  [[nodiscard]] bool trains_all() const { return parts_of(train).weights == Parts::Weights::kAll; }
  [[nodiscard]] bool has_lora() const { return parts_of(train).lora; }
  [[nodiscard]] bool has_adapter() const { return parts_of(train).adapter; }
  [[nodiscard]] bool has_second_map() const { return parts_of(train).second_map; }
  // Whether what is published is a whole checkpoint, no adapter.
  [[nodiscard]] bool publishes_model() const { return trains_all() || has_second_map(); }
  // Whether P of §3.2 exists: uniform_map has none.
  [[nodiscard]] bool has_projection() const { return has_branch() && form != Form::kUniformMap; }
  [[nodiscard]] bool has_gate() const { return has_branch() && form != Form::kPaper; }
  // Whether the branch has a w_d, rather than a bottleneck's two factors or no projection.
  [[nodiscard]] bool has_map() const {
    return has_projection() && projection != Projection::kBottleneck;
  }
  // Whether P is a product with one matrix.
  [[nodiscard]] bool is_linear() const {
    return !has_projection() || projection != Projection::kBottleneck ||
           bottleneck_activation == Activation::kNone;
  }
  // Whether the branch reads a mean of the tokens before, its state when decoding.
  [[nodiscard]] bool keeps_state() const {
    return form == Form::kPrefixMean || form == Form::kUniformMap;
  }
  // Whether the branch is a matrix on concat(O), which goes into W_O; true without a branch.
  [[nodiscard]] bool branch_folds() const { return is_linear() && !keeps_state(); }
  [[nodiscard]] bool learns_lambda() const;  // λ_learn exists: paper_eq4, learned
  [[nodiscard]] double sign_value() const { return sign == Sign::kMinus ? -1.0 : 1.0; }  // s of §1
};

// Names as in method.md and in artefacts: "head_mean", "per_head", "minus", "kvo+dex", "paper_eq4".
// The readers throw "[options] form …" with the value and the names that exist.
std::string_view name(Form value);
std::string_view name(Projection value);
std::string_view name(BottleneckScope value);
std::string_view name(Activation value);
std::string_view name(Sign value);
std::string_view name(Train value);
std::string_view name(BranchInit value);
std::string_view name(Schedule value);
Form parse_form(std::string_view text);
Projection parse_projection(std::string_view text);
BottleneckScope parse_bottleneck_scope(std::string_view text);
Activation parse_activation(std::string_view text);
Sign parse_sign(std::string_view text);
Train parse_train(std::string_view text);
Schedule parse_schedule(std::string_view text);

// Why an adapted model of these options can't be folded into plain weights, by name and with the
// way out (§3.6, §7); empty: it can.
std::string not_foldable(const DexOptions& options);

// The width w that the projection multiplies: d, or H·d for `dense` and a bottleneck of that scope.
int64_t projected_width(const DexOptions& options, const Config& config);

// m of a bottleneck, round half up, at least 1.
int64_t bottleneck_width(const DexOptions& options, const Config& config);

// The class of what is published (api.md §3): LIGHT, KVO, or MODEL (a whole checkpoint). A map over
// all heads together is KVO: it is as large as the projections.
std::string_view artifact_class(const DexOptions& options, const Config& config);

// Artefact key ("w_d", "gate" …) and shape of every tensor of a layer's branch that the options ask
// for (§3.2), in a fixed order.
std::vector<std::pair<std::string, std::vector<int64_t>>> branch_shapes(const DexOptions& options,
                                                                        const Config& config);

// λ_init(l) = 0.8 − 0.6·exp(−0.3·l), l from 0 (§2.2).
double lambda_init(int64_t layer);

// λ = fixed + learned·λ_learn at update t. `learned` is α(t), the factor of ∂λ/∂λ_learn; 0 for
// schedules that learn nothing.
struct LambdaTerms {
  double fixed = 0;
  double learned = 0;
  [[nodiscard]] double at(double lambda_learn) const { return fixed + learned * lambda_learn; }
};
LambdaTerms lambda_terms(const LambdaOptions& options, int64_t layer, int64_t t);

// The same as one number (§2.2, §3.3). Inside update u use t = u; what is published after n updates
// uses t = n.
double lambda_at(const LambdaOptions& options, int64_t layer, int64_t t, double lambda_learn);

// Everything that is wrong with a combination, worded as in method.md §2.5 and §3.6; empty: it can
// be trained. `selected_heads`: a list a layer. `updates` is N.
std::vector<std::string> problems(const DexOptions& options, const Config& config,
                                  const std::vector<std::vector<int64_t>>& selected_heads,
                                  int64_t updates);

// Why no branch can be on a model of this kind, by name and with the way out; empty: one can.
std::string branch_refusal(const Config& config);

// Only the rules about heads: number of layers, range, duplicates.
std::vector<std::string> head_problems(const Config& config,
                                       const std::vector<std::vector<int64_t>>& selected_heads);

}  // namespace dex::model
