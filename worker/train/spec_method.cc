#include "worker/train/spec_method.h"

#include <stdexcept>

#include "worker/train/failure.h"
#include "worker/train/spec_dex.h"

namespace dex::train::detail {
namespace {

namespace pb = dex::v1;

// Their numbers are within their limits already (proto/spec_values.h).
void read_adapter(const pb::AdapterMethod& in, model::BottleneckAdapterOptions& out) {
  if (in.has_size()) out.size = in.size();
  if (in.placement() == pb::AdapterMethod::PLACEMENT_ATTENTION)
    out.placement = model::Placement::kAttention;
  if (in.placement() == pb::AdapterMethod::PLACEMENT_MLP) out.placement = model::Placement::kMlp;
  if (in.activation() == pb::AdapterMethod::ACTIVATION_GELU)
    out.activation = model::AdapterActivation::kGelu;
}

void read_diff(const pb::DiffMethod& in, JobSpec& out) {
  using Second = model::SecondMapOptions;
  const bool all = in.train() == pb::DiffMethod::TRAIN_ALL;
  out.dex.train = all ? model::Train::kDiffAll : model::Train::kDiffAttention;
  if (in.version() == pb::DiffMethod::VERSION_V1) out.dex.second_map.version = Second::Version::kV1;
  if (in.init() == pb::DiffMethod::INIT_MIRROR) out.dex.second_map.init = Second::Init::kMirror;
  if (in.has_mix_in_ratio()) out.mix_in_ratio = in.mix_in_ratio();
}

}  // namespace

void read_lora(const pb::LoraMethod& in, const std::string& field, model::LoraOptions& out) {
  if (in.has_r()) out.r = in.r();
  if (in.has_alpha()) out.alpha = in.alpha();
  if (in.has_dropout()) out.dropout = in.dropout();
  if (in.has_use_rslora()) out.rslora = in.use_rslora();
  if (in.target_modules_size() > 0) {
    out.targets.clear();
    for (const std::string& target : in.target_modules()) {
      try {
        out.targets.push_back(model::parse_linear(target));
      } catch (const std::runtime_error& error) {
        throw bad_spec(field + ".target_modules", error.what());
      }
    }
  }
  // Limits again, and what is wrong between the values: a target twice.
  if (const auto found = problems(out); !found.empty()) throw bad_spec(field, found.front());
}

void read_method(const pb::FineTuningJobSpec& spec, JobSpec& out) {
  using Spec = pb::FineTuningJobSpec;
  if (spec.method_case() == Spec::kDex || spec.method_case() == Spec::METHOD_NOT_SET) {
    read_dex(spec.dex(), out);
    return;
  }
  out.dex.form = model::Form::kNone;
  switch (spec.method_case()) {
    case Spec::kKvoOnly:
      out.dex.train = model::Train::kKvoOnly;
      break;
    case Spec::kLora:
      out.dex.train = model::Train::kLora;
      read_lora(spec.lora(), "lora", out.dex.lora);
      break;
    case Spec::kAdapter:
      out.dex.train = model::Train::kAdapter;
      read_adapter(spec.adapter(), out.dex.adapter);
      break;
    case Spec::kFull:
      out.dex.train = model::Train::kFull;
      break;
    case Spec::kDiff:
      read_diff(spec.diff(), out);
      break;
    default:
      throw bad_spec("method", "is not one that this trainer knows");
  }
}

}  // namespace dex::train::detail
