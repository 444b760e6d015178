#include "worker/train/spec_dex.h"

#include "worker/train/failure.h"
#include "worker/train/spec_method.h"

namespace dex::train::detail {
namespace {

namespace pb = dex::v1;
using pb::DexMethod;
using pb::HeadSelection;

// A value of the contract that this trainer does not compute yet.
[[noreturn]] void unknown_enum(const char* field, int value) {
  throw bad_spec(field, "unknown value " + std::to_string(value));
}

model::Form form(DexMethod::Form value) {
  switch (value) {
    case DexMethod::FORM_PAPER:
      return model::Form::kPaper;
    case DexMethod::FORM_DENSE:  // its projection and sign: resolve_dense
      return model::Form::kPaper;
    case DexMethod::FORM_HEAD_MEAN:
      return model::Form::kHeadMean;
    case DexMethod::FORM_PREFIX_MEAN:
      return model::Form::kPrefixMean;
    case DexMethod::FORM_UNIFORM_MAP:
      return model::Form::kUniformMap;
    default:
      unknown_enum("dex.form", value);
  }
}

model::Projection projection(DexMethod::Projection value) {
  switch (value) {
    case DexMethod::PROJECTION_SHARED:
      return model::Projection::kShared;
    case DexMethod::PROJECTION_PER_HEAD:
      return model::Projection::kPerHead;
    case DexMethod::PROJECTION_DENSE:
      return model::Projection::kDense;
    case DexMethod::PROJECTION_BOTTLENECK:
      return model::Projection::kBottleneck;
    default:
      unknown_enum("dex.projection", value);
  }
}

// The form's own default (method.md §3.1).
model::Sign default_sign(model::Form form) {
  const bool minus = form == model::Form::kPaper || form == model::Form::kUniformMap;
  return minus ? model::Sign::kMinus : model::Sign::kPlus;
}

// `dense`, and head_mean over a dense map, are paper + dense + plus (method.md §3.1, §3.2): an
// effective spec says so already, one written by hand may not.
void resolve_dense(const DexMethod& method, model::DexOptions& out) {
  const bool form = method.form() == DexMethod::FORM_DENSE;
  if (form && method.has_projection() && out.projection != model::Projection::kDense) {
    throw bad_spec("dex.projection", "must be PROJECTION_DENSE or unset with FORM_DENSE");
  }
  if (form) out.projection = model::Projection::kDense;
  const bool mean =
      out.form == model::Form::kHeadMean && out.projection == model::Projection::kDense;
  if (!form && !mean) return;
  if (method.sign() == DexMethod::SIGN_MINUS) {
    throw bad_spec("dex.sign",
                   "must be SIGN_PLUS or unset with this form; SIGN_MINUS goes with "
                   "FORM_PAPER and PROJECTION_DENSE");
  }
  out.form = model::Form::kPaper;
  out.sign = model::Sign::kPlus;
}

void read_bottleneck(const DexMethod& method, model::DexOptions& out) {
  if (!method.has_bottleneck()) return;
  if (out.projection != model::Projection::kBottleneck) {
    throw bad_spec("dex.bottleneck", "has an effect only with PROJECTION_BOTTLENECK");
  }
  const auto& bottleneck = method.bottleneck();
  if (bottleneck.has_width_ratio()) out.width_ratio = bottleneck.width_ratio();
  switch (bottleneck.scope()) {
    case DexMethod::Bottleneck::SCOPE_SHARED:
      out.bottleneck_scope = model::BottleneckScope::kShared;
      break;
    case DexMethod::Bottleneck::SCOPE_PER_HEAD:
      out.bottleneck_scope = model::BottleneckScope::kPerHead;
      break;
    case DexMethod::Bottleneck::SCOPE_DENSE:
      out.bottleneck_scope = model::BottleneckScope::kDense;
      break;
    default:
      break;
  }
  if (bottleneck.activation() == DexMethod::Bottleneck::ACTIVATION_SILU) {
    out.bottleneck_activation = model::Activation::kSilu;
  }
  if (bottleneck.activation() == DexMethod::Bottleneck::ACTIVATION_GELU) {
    out.bottleneck_activation = model::Activation::kGelu;
  }
}

void read_train(const DexMethod& method, model::DexOptions& out) {
  switch (method.train()) {
    case DexMethod::TRAIN_KVO_DEX:
    case DexMethod::TRAIN_UNSPECIFIED:
      break;
    case DexMethod::TRAIN_DEX_ONLY:
      out.train = model::Train::kDexOnly;
      break;
    case DexMethod::TRAIN_LORA_DEX:
      out.train = model::Train::kLoraDex;
      // What kvo+dex trains: q stays as it is (method.md §3.5).
      out.lora.targets = {model::Linear::kK, model::Linear::kV, model::Linear::kO};
      break;
    case DexMethod::TRAIN_FULL_DEX:
      out.train = model::Train::kFullDex;
      break;
    default:
      unknown_enum("dex.train", method.train());
  }
  if (method.has_lora() && out.train != model::Train::kLoraDex)
    throw bad_spec("dex.lora", "has an effect only with TRAIN_LORA_DEX");
  if (method.has_lora()) read_lora(method.lora(), "dex.lora", out.lora);
}

void read_lambda(const pb::Lambda& lambda, JobSpec& out) {
  auto& options = out.dex.lambda;
  if (lambda.has_schedule()) {
    switch (lambda.schedule()) {
      case pb::Lambda::SCHEDULE_PAPER_EQ4:
        options.schedule = model::Schedule::kPaperEq4;
        break;
      case pb::Lambda::SCHEDULE_COSINE:
        options.schedule = model::Schedule::kSeedCosine;
        break;
      case pb::Lambda::SCHEDULE_CONSTANT:
        options.schedule = model::Schedule::kConstant;
        break;
      case pb::Lambda::SCHEDULE_LEARNED:
        options.schedule = model::Schedule::kLearned;
        break;
      default:
        unknown_enum("dex.lambda.schedule", lambda.schedule());
    }
  }
  const bool cosine = options.schedule == model::Schedule::kSeedCosine;
  if (cosine && (!lambda.has_start() || !lambda.has_end())) {
    throw bad_spec("dex.lambda.start", "start and end are needed with SCHEDULE_COSINE");
  }
  if (options.schedule == model::Schedule::kConstant && !lambda.has_value()) {
    throw bad_spec("dex.lambda.value", "is needed with SCHEDULE_CONSTANT");
  }
  if (lambda.has_value()) options.value = lambda.value();
  if (lambda.has_init()) options.init = lambda.init();
  if (lambda.has_learn_init()) options.learn_init = lambda.learn_init();
  if (cosine) {
    options.start = lambda.start();
    options.end = lambda.end();
  }
  if (lambda.anneal_case() == pb::Lambda::kAnnealFraction)
    out.anneal.fraction = lambda.anneal_fraction();
  if (lambda.anneal_case() == pb::Lambda::kAnnealSteps) out.anneal.steps = lambda.anneal_steps();
}

evaluate::Criterion criterion(HeadSelection::Criterion value) {
  switch (value) {
    case HeadSelection::CRITERION_ENTROPY:
      return evaluate::Criterion::kEntropy;
    case HeadSelection::CRITERION_IMPORTANCE:
      return evaluate::Criterion::kImportance;
    case HeadSelection::CRITERION_THRESHOLD:
      return evaluate::Criterion::kThreshold;
    case HeadSelection::CRITERION_ALL:
      return evaluate::Criterion::kAll;
    case HeadSelection::CRITERION_EXPLICIT:
      return evaluate::Criterion::kExplicit;
    default:
      unknown_enum("dex.head_selection.criterion", value);
  }
}

void read_units(const HeadSelection& heads, evaluate::SelectionRule& out) {
  switch (heads.entropy_unit()) {
    case HeadSelection::ENTROPY_UNIT_NATS:
      out.entropy_unit = evaluate::EntropyUnit::kNats;
      break;
    case HeadSelection::ENTROPY_UNIT_NORMALIZED:
      out.entropy_unit = evaluate::EntropyUnit::kNormalized;
      break;
    case HeadSelection::ENTROPY_UNIT_QUANTILE:
      out.entropy_unit = evaluate::EntropyUnit::kQuantile;
      break;
    default:
      out.entropy_unit = evaluate::EntropyUnit::kZscore;
  }
  switch (heads.contribution_unit()) {
    case HeadSelection::CONTRIBUTION_UNIT_SHARE:
      out.contribution_unit = evaluate::ContributionUnit::kShare;
      break;
    case HeadSelection::CONTRIBUTION_UNIT_RELMAX:
      out.contribution_unit = evaluate::ContributionUnit::kRelmax;
      break;
    default:
      out.contribution_unit = evaluate::ContributionUnit::kL2norm;
  }
}

void read_calibration(const HeadSelection::Calibration& calibration, Calibration& out) {
  if (calibration.has_n_sequences())
    out.n_sequences = static_cast<int32_t>(calibration.n_sequences());
  if (calibration.has_seq_length()) out.seq_length = static_cast<int32_t>(calibration.seq_length());
  if (calibration.has_skip_rows()) out.skip_rows = static_cast<int32_t>(calibration.skip_rows());
}

void read_heads(const HeadSelection& heads, JobSpec& out) {
  if (heads.has_criterion()) out.heads.criterion = criterion(heads.criterion());
  if (heads.has_fraction()) out.heads.fraction = heads.fraction();
  const bool threshold = out.heads.criterion == evaluate::Criterion::kThreshold;
  if (threshold && (!heads.has_tau() || !heads.has_eta())) {
    throw bad_spec(heads.has_tau() ? "dex.head_selection.eta" : "dex.head_selection.tau",
                   "tau and eta are needed with CRITERION_THRESHOLD");
  }
  if (threshold) {
    out.heads.tau = heads.tau();
    out.heads.eta = heads.eta();
  }
  read_units(heads, out.heads);
  for (const auto& entry : heads.heads()) {
    if (entry.layer() > 4096) {
      throw bad_spec("dex.head_selection.heads",
                     "layer " + std::to_string(entry.layer()) + " does not exist");
    }
    // One entry a layer that has any; the number of layers is known with the model.
    if (out.heads.heads.size() <= entry.layer()) out.heads.heads.resize(entry.layer() + 1);
    auto& list = out.heads.heads[entry.layer()];
    list.insert(list.end(), entry.heads().begin(), entry.heads().end());
  }
  if (heads.has_calibration()) read_calibration(heads.calibration(), out.calibration);
  out.reselect_every = heads.reselect_every_steps();
  if (heads.has_soft_floor()) out.dex.soft_floor = heads.soft_floor();
}

}  // namespace

void read_dex(const DexMethod& method, JobSpec& out) {
  out.preset = method.preset();
  const std::string family = out.preset.substr(0, out.preset.find('@'));
  if (!family.empty() && family != "paper" && !method.has_form()) {
    throw bad_spec("dex.preset",
                   "\"" + out.preset +
                       "\" has no values here; dex-trainer takes effective specs, presets are "
                       "resolved by the scheduler");
  }
  if (method.has_form()) out.dex.form = form(method.form());
  if (method.has_projection()) out.dex.projection = projection(method.projection());
  read_bottleneck(method, out.dex);
  out.dex.sign = default_sign(out.dex.form);
  if (method.sign() == DexMethod::SIGN_MINUS) out.dex.sign = model::Sign::kMinus;
  if (method.sign() == DexMethod::SIGN_PLUS) out.dex.sign = model::Sign::kPlus;
  resolve_dense(method, out.dex);
  if (method.start() == DexMethod::START_LITERAL) out.dex.start = model::Start::kLiteral;
  out.dex.allow_large_projection = method.allow_large_projection();
  read_train(method, out.dex);
  if (method.w_d_init() == DexMethod::BRANCH_INIT_LINEAR)
    out.dex.w_d_init = model::BranchInit::kLinear;
  if (method.has_lambda()) read_lambda(method.lambda(), out);
  if (method.has_head_selection()) read_heads(method.head_selection(), out);
}

}  // namespace dex::train::detail
