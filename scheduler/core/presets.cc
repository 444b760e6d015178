#include "scheduler/core/presets.h"

#include <algorithm>
#include <string>

#include "scheduler/core/fields.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::HeadSelection;
using dex::v1::Lambda;
using dex::v1::Preset;

constexpr std::string_view kFirst = "1", kSecond = "2";

// Oldest first. Earlier ones stay, so that a job can be asked for again as it was.
std::vector<std::string_view> versions_of(std::string_view name) {
  if (name == "multilingual") return {kFirst, kSecond};
  return {kFirst};
}

// Builds a preset value by value and remembers where each came from: later calls win.
class Builder {
 public:
  Builder(std::string_view name, std::string_view summary, std::string_view version = kFirst) {
    preset_.set_name(std::string(name));
    preset_.set_version(std::string(name) + "@" + std::string(version));
    preset_.set_summary(std::string(summary));
  }

  DexMethod& dex() { return *preset_.mutable_spec()->mutable_dex(); }
  HeadSelection& heads() { return *dex().mutable_head_selection(); }
  Lambda& lambda() { return *dex().mutable_lambda(); }
  dex::v1::Hyperparameters& hyper() { return *preset_.mutable_spec()->mutable_hyperparameters(); }

  // Everything that has been set since the last call came from `source`.
  void mark(const std::string& source) {
    for_each_set_field(preset_.spec(), [&](const std::string& path) {
      preset_.mutable_sources()->insert({path, source});
    });
  }
  void remark(const std::string& path, const std::string& source) {
    (*preset_.mutable_sources())[path] = source;
  }
  Preset& result() { return preset_; }

 private:
  Preset preset_;
};

// method.md §2.3: the recipe that all presets share.
void add_recipe(Builder& builder) {
  auto& hyper = builder.hyper();
  hyper.set_n_epochs(1);
  hyper.set_lr_scheduler_type(dex::v1::Hyperparameters::LR_SCHEDULER_COSINE);
  hyper.set_warmup_ratio(0.03);
  builder.dex().set_train(DexMethod::TRAIN_KVO_DEX);
  builder.mark("paper");
  hyper.set_max_grad_norm(1.0);
  hyper.set_weight_decay(0.0);
  hyper.set_adam_beta1(0.9);
  hyper.set_adam_beta2(0.999);
  builder.dex().set_w_d_init(DexMethod::BRANCH_INIT_ZEROS);
  auto& calibration = *builder.heads().mutable_calibration();
  calibration.set_n_sequences(8);
  calibration.set_seq_length(512);
  calibration.set_skip_rows(32);
  builder.heads().set_reselect_every_steps(0);
  builder.mark("ours");
}

Preset paper() {
  Builder builder(
      "paper",
      "The published method: shared W_D, minus sign, half of the heads by entropy, λ by Eq. 4.");
  add_recipe(builder);
  auto& dex = builder.dex();
  dex.set_form(DexMethod::FORM_PAPER);
  dex.set_projection(DexMethod::PROJECTION_SHARED);
  dex.set_sign(DexMethod::SIGN_MINUS);
  builder.heads().set_criterion(HeadSelection::CRITERION_ENTROPY);
  builder.heads().set_fraction(0.5);
  builder.lambda().set_schedule(Lambda::SCHEDULE_PAPER_EQ4);
  builder.lambda().set_learn_init(0.0);
  builder.hyper().set_learning_rate(1e-4);
  builder.hyper().set_branch_learning_rate(1e-4);
  builder.hyper().set_lambda_learning_rate(1e-4);
  builder.mark("paper");
  builder.lambda().set_anneal_fraction(0.5);  // the paper's T is not known
  builder.mark("ours");
  builder.result().set_paper_method(true);
  return builder.result();
}

// The class columns of method.md §5 (there: seed-small, seed-medium, seed-large).
struct ClassValues {
  double lambda_start, lambda_end;
  int64_t anneal_steps;
  double tau, eta;
};
ClassValues class_values(SizeClass size) {
  switch (size) {
    case SizeClass::kSmall:
      return {0.05, 0.3, 3000, 1.0, 0.03};
    case SizeClass::kMedium:
      return {0.1, 0.5, 5000, 1.2, 0.05};
    case SizeClass::kLarge:
      break;
  }
  return {0.1, 0.5, 8000, 1.5, 0.07};
}

void add_class(Builder& builder, SizeClass size) {
  add_recipe(builder);
  const ClassValues values = class_values(size);
  auto& dex = builder.dex();
  dex.set_form(DexMethod::FORM_HEAD_MEAN);
  dex.set_projection(DexMethod::PROJECTION_PER_HEAD);
  dex.set_sign(DexMethod::SIGN_PLUS);
  auto& heads = builder.heads();
  heads.set_entropy_unit(HeadSelection::ENTROPY_UNIT_ZSCORE);
  heads.set_contribution_unit(HeadSelection::CONTRIBUTION_UNIT_L2NORM);
  builder.mark("ours");
  heads.set_criterion(HeadSelection::CRITERION_THRESHOLD);
  heads.set_tau(values.tau);
  heads.set_eta(values.eta);
  auto& lambda = builder.lambda();
  lambda.set_schedule(Lambda::SCHEDULE_COSINE);
  lambda.set_start(values.lambda_start);
  lambda.set_end(values.lambda_end);
  lambda.set_anneal_steps(values.anneal_steps);
  builder.hyper().set_learning_rate(5e-5);
  builder.hyper().set_branch_learning_rate(1e-4);
  builder.mark("brief");
}

Preset by_size(std::string_view name, SizeClass size, std::string_view summary) {
  Builder builder(name, summary);
  add_class(builder, size);
  return builder.result();
}

Preset code(SizeClass size) {
  Builder builder(
      "code",
      "Source code: few heads, chosen strictly, and a strong difference at the end (λ 0.65).");
  add_class(builder, size);
  builder.heads().set_tau(1.8);
  builder.lambda().set_end(0.65);
  return builder.result();
}

Preset long_text(SizeClass size) {
  Builder builder("long_text", "Long documents: slow annealing and rates lowered by 0.7.");
  add_class(builder, size);
  builder.lambda().set_anneal_steps(std::max<int64_t>(10000, class_values(size).anneal_steps));
  builder.hyper().set_learning_rate(3.5e-5);
  builder.hyper().set_branch_learning_rate(7e-5);
  builder.hyper().set_truncation(dex::v1::Hyperparameters::TRUNCATION_CHUNK);
  builder.mark("ours");
  return builder.result();
}

// Version 2 draws rows by language, so that a small one is not lost among large ones; 1 reads them
// as they are.
Preset multilingual(SizeClass size, std::string_view version) {
  const bool balanced = version == kSecond;
  const std::string summary =
      "Many languages: a wider projection for each head, heads selected anew every 500 updates";
  Builder builder("multilingual",
                  summary + (balanced ? ", each language an equal share of what is read." : "."),
                  version);
  add_class(builder, size);
  builder.dex().set_projection(DexMethod::PROJECTION_BOTTLENECK);
  builder.dex().mutable_bottleneck()->set_width_ratio(1.5);
  builder.mark("brief");
  builder.dex().mutable_bottleneck()->set_scope(DexMethod::Bottleneck::SCOPE_PER_HEAD);
  builder.heads().set_reselect_every_steps(500);
  builder.remark("dex.head_selection.reselect_every_steps", "ours");
  builder.remark("dex.projection", "brief");
  builder.hyper().set_group_by(balanced ? dex::v1::Hyperparameters::GROUP_BY_LANGUAGE
                                        : dex::v1::Hyperparameters::GROUP_BY_NONE);
  builder.mark("ours");
  return builder.result();
}

std::string_view class_name(SizeClass size) {
  switch (size) {
    case SizeClass::kSmall:
      return "small";
    case SizeClass::kMedium:
      return "medium";
    case SizeClass::kLarge:
      break;
  }
  return "large";
}

std::string known_names() {
  std::string names;
  for (const auto name : preset_names()) names += (names.empty() ? "" : ", ") + std::string(name);
  return names;
}

base::Status unknown_version(std::string_view requested, std::string_view name) {
  std::string known;
  for (const auto version : versions_of(name))
    known += (known.empty() ? "" : ", ") + std::string(name) + "@" + std::string(version);
  return base::invalid_argument(
      "UNKNOWN_PRESET",
      "preset \"" + std::string(requested) + "\" is not known in that version; there is " + known);
}

}  // namespace

SizeClass size_class(int64_t parameters) {
  if (parameters < 1'000'000'000) return SizeClass::kSmall;
  return parameters <= 3'500'000'000 ? SizeClass::kMedium : SizeClass::kLarge;
}

const std::vector<std::string_view>& preset_names() {
  static const std::vector<std::string_view> names = {"paper", "small",     "medium",      "large",
                                                      "code",  "long_text", "multilingual"};
  return names;
}

std::string canonical_preset_name(std::string_view name) {
  std::string canonical(name);
  std::replace(canonical.begin(), canonical.end(), '-', '_');
  return canonical;
}

base::Result<Preset> preset(std::string_view requested, SizeClass size) {
  const std::string canonical = canonical_preset_name(requested);
  const size_t at = canonical.find('@');
  std::string_view name = std::string_view(canonical).substr(0, at);
  const auto versions = versions_of(name);
  std::string_view version = versions.back();
  if (at != std::string::npos) {
    version = std::string_view(canonical).substr(at + 1);
    if (std::find(versions.begin(), versions.end(), version) == versions.end())
      return unknown_version(requested, name);
  }
  if (name.empty() || name == "auto") name = class_name(size);
  if (name == "paper") return paper();
  if (name == "small") return by_size(name, SizeClass::kSmall, "Base models below 1 B parameters.");
  if (name == "medium")
    return by_size(name, SizeClass::kMedium, "Base models of 1 to 3.5 B parameters.");
  if (name == "large")
    return by_size(name, SizeClass::kLarge, "Base models above 3.5 B parameters.");
  if (name == "code") return code(size);
  if (name == "long_text") return long_text(size);
  if (name == "multilingual") return multilingual(size, version);
  const std::string what =
      "preset \"" + std::string(requested) + "\" is not known; there are auto, " + known_names();
  return base::Status(base::Status(base::Code::kInvalidArgument, "UNKNOWN_PRESET", what)
                          .with_violation("dex.preset", what));
}

}  // namespace dex::core
