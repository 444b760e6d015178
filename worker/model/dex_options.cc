#include "worker/model/dex_options.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "worker/model/named_values.h"

namespace dex::model {

namespace {

constexpr std::array<std::pair<Form, std::string_view>, 5> kForms{
    {{Form::kNone, "none"},
     {Form::kPaper, "paper"},
     {Form::kHeadMean, "head_mean"},
     {Form::kPrefixMean, "prefix_mean"},
     {Form::kUniformMap, "uniform_map"}}};
constexpr std::array<std::pair<Projection, std::string_view>, 4> kProjections{
    {{Projection::kShared, "shared"},
     {Projection::kPerHead, "per_head"},
     {Projection::kDense, "dense"},
     {Projection::kBottleneck, "bottleneck"}}};
constexpr std::array<std::pair<BottleneckScope, std::string_view>, 3> kScopes{
    {{BottleneckScope::kShared, "shared"},
     {BottleneckScope::kPerHead, "per_head"},
     {BottleneckScope::kDense, "dense"}}};
constexpr std::array<std::pair<Activation, std::string_view>, 3> kActivations{
    {{Activation::kNone, "none"}, {Activation::kSilu, "silu"}, {Activation::kGelu, "gelu"}}};
constexpr std::array<std::pair<Sign, std::string_view>, 2> kSigns{
    {{Sign::kMinus, "minus"}, {Sign::kPlus, "plus"}}};
constexpr std::array<std::pair<Train, std::string_view>, 10> kTrains{
    {{Train::kKvoDex, "kvo+dex"},
     {Train::kDexOnly, "dex_only"},
     {Train::kKvoOnly, "kvo_only"},
     {Train::kLoraDex, "lora+dex"},
     {Train::kFullDex, "full+dex"},
     {Train::kLora, "lora"},
     {Train::kAdapter, "adapter"},
     {Train::kFull, "full"},
     {Train::kDiffAttention, "diff_attention"},
     {Train::kDiffAll, "diff_all"}}};
constexpr std::array<std::pair<BranchInit, std::string_view>, 2> kInits{
    {{BranchInit::kZeros, "zeros"}, {BranchInit::kLinear, "linear"}}};
constexpr std::array<std::pair<Schedule, std::string_view>, 4> kSchedules{
    {{Schedule::kPaperEq4, "paper_eq4"},
     {Schedule::kSeedCosine, "seed_cosine"},
     {Schedule::kConstant, "constant"},
     {Schedule::kLearned, "learned"}}};

}  // namespace

Parts parts_of(Train train) {
  using enum Parts::Weights;
  switch (train) {
    case Train::kKvoDex:
      return {.weights = kKvo, .branch = true};
    case Train::kDexOnly:
      return {.branch = true};
    case Train::kKvoOnly:
      return {.weights = kKvo};
    case Train::kLoraDex:
      return {.branch = true, .lora = true};
    case Train::kFullDex:
      return {.weights = kAll, .branch = true};
    case Train::kLora:
      return {.lora = true};
    case Train::kAdapter:
      return {.adapter = true};
    case Train::kDiffAttention:
      return {.weights = kAttention, .second_map = true};
    case Train::kDiffAll:
      return {.weights = kAll, .second_map = true};
    case Train::kFull:
      break;
  }
  return {.weights = kAll};
}

bool trains_weight(Train train, std::string_view name) {
  const Parts::Weights weights = parts_of(train).weights;
  if (weights == Parts::Weights::kAttention) return name.find("self_attn.") != name.npos;
  if (weights != Parts::Weights::kKvo) return weights == Parts::Weights::kAll;
  for (const std::string_view part : {".k_proj.", ".v_proj.", ".o_proj."}) {
    if (name.find(part) != std::string_view::npos) return true;
  }
  return false;
}

std::string_view method_name(Train train) {
  const Parts parts = parts_of(train);
  return parts.branch ? "dex" : parts.second_map ? "diff" : name(train);
}

double usual_learning_rate(Train train) {
  const Parts parts = parts_of(train);
  if (parts.weights == Parts::Weights::kAll) return 2e-5;
  return parts.lora ? 2e-4 : 1e-4;
}

bool DexOptions::learns_lambda() const {
  return has_branch() &&
         (lambda.schedule == Schedule::kPaperEq4 || lambda.schedule == Schedule::kLearned);
}

std::string_view name(Form value) {
  return name_in(kForms, value);
}
std::string_view name(Projection value) {
  return name_in(kProjections, value);
}
std::string_view name(BottleneckScope value) {
  return name_in(kScopes, value);
}
std::string_view name(Activation value) {
  return name_in(kActivations, value);
}
std::string_view name(Sign value) {
  return name_in(kSigns, value);
}
std::string_view name(Train value) {
  return name_in(kTrains, value);
}
std::string_view name(BranchInit value) {
  return name_in(kInits, value);
}
std::string_view name(Schedule value) {
  return name_in(kSchedules, value);
}
Form parse_form(std::string_view text) {
  return parse_in(kForms, "form", text);
}
Projection parse_projection(std::string_view text) {
  return parse_in(kProjections, "projection", text);
}
BottleneckScope parse_bottleneck_scope(std::string_view text) {
  return parse_in(kScopes, "bottleneck_scope", text);
}
Activation parse_activation(std::string_view text) {
  return parse_in(kActivations, "bottleneck_activation", text);
}
Sign parse_sign(std::string_view text) {
  return parse_in(kSigns, "sign", text);
}
Train parse_train(std::string_view text) {
  return parse_in(kTrains, "train", text);
}
Schedule parse_schedule(std::string_view text) {
  return parse_in(kSchedules, "lambda schedule", text);
}

std::string not_foldable(const DexOptions& options) {
  const std::string way_out = "; it can't be folded, serve it as an adapter";
  if (options.has_second_map()) {
    return "method diff keeps a second attention map; it can't be folded, serve it as a base model";
  }
  if (options.has_adapter()) return "method adapter acts between two products" + way_out;
  if (options.keeps_state()) {
    return "form " + std::string(name(options.form)) + " keeps state between tokens" + way_out;
  }
  if (options.is_linear()) return {};
  return "a bottleneck with activation " + std::string(name(options.bottleneck_activation)) +
         " is not linear" + way_out;
}

int64_t projected_width(const DexOptions& options, const Config& config) {
  const bool dense = options.projection == Projection::kDense ||
                     (options.projection == Projection::kBottleneck &&
                      options.bottleneck_scope == BottleneckScope::kDense);
  return dense ? config.heads * config.head_dim : config.head_dim;
}

int64_t bottleneck_width(const DexOptions& options, const Config& config) {
  const auto width = static_cast<double>(projected_width(options, config));
  return std::max<int64_t>(1, static_cast<int64_t>(std::floor(options.width_ratio * width + 0.5)));
}

std::string_view artifact_class(const DexOptions& options, const Config& config) {
  if (options.publishes_model()) return "MODEL";
  const bool wide = options.has_projection() && projected_width(options, config) != config.head_dim;
  return options.trains_kvo() || wide ? "KVO" : "LIGHT";
}

std::vector<std::pair<std::string, std::vector<int64_t>>> branch_shapes(const DexOptions& options,
                                                                        const Config& config) {
  using Shape = std::vector<int64_t>;
  std::vector<std::pair<std::string, Shape>> shapes;
  if (!options.has_branch()) return shapes;
  const int64_t heads = config.heads, w = projected_width(options, config);
  if (options.has_map()) {
    const bool per_head = options.projection == Projection::kPerHead;
    shapes.push_back({"w_d", per_head ? Shape{heads, w, w} : Shape{w, w}});
  } else if (options.has_projection()) {
    const bool per_head = options.bottleneck_scope == BottleneckScope::kPerHead;
    const int64_t m = bottleneck_width(options, config);
    shapes.push_back({"w_down", per_head ? Shape{heads, w, m} : Shape{w, m}});
    shapes.push_back({"w_up", per_head ? Shape{heads, m, w} : Shape{m, w}});
  }
  if (options.has_gate()) shapes.push_back({"gate", {heads}});
  if (options.learns_lambda()) shapes.push_back({"lambda_learn", {1}});
  return shapes;
}

double mix_at(const SecondMapOptions& options, int64_t t) {
  if (options.mix_updates <= 0) return 1;
  return std::min(1.0, static_cast<double>(t) / options.mix_updates);
}

}  // namespace dex::model
