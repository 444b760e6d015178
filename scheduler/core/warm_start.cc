#include "scheduler/core/warm_start.h"

#include <vector>

#include "scheduler/core/methods.h"

namespace dex::core {

namespace {

using dex::v1::DexMethod;
using dex::v1::FineTuningJobSpec;
using dex::v1::Lambda;
using dex::v1::LoraMethod;

struct Violation {
  std::string field, what;
};

base::Status mismatch(const std::string& id, const std::vector<Violation>& violations) {
  std::string text;
  for (const Violation& violation : violations)
    text += (text.empty() ? "" : "; ") + violation.field + " " + violation.what;
  auto status = base::failed_precondition("ADAPTER_MISMATCH",
                                          "The job can't go on from '" + id + "': " + text);
  for (const Violation& violation : violations)
    status = std::move(status).with_violation(violation.field, violation.what);
  return status;
}

// Dropout is how LoRA is trained, not what it is.
void copy_lora(const LoraMethod& from, LoraMethod& to) {
  to = from;
  to.clear_dropout();
}

// The part of a spec that says what an adapter is, rather than how it was trained.
FineTuningJobSpec shape_of(const FineTuningJobSpec& made) {
  FineTuningJobSpec shape;
  if (made.has_kvo_only()) shape.mutable_kvo_only();  // its preset is how it was trained
  if (made.has_lora()) copy_lora(made.lora(), *shape.mutable_lora());
  if (made.has_adapter()) *shape.mutable_adapter() = made.adapter();
  if (made.hyperparameters().first_layer() > 0)
    shape.mutable_hyperparameters()->set_first_layer(made.hyperparameters().first_layer());
  if (!made.has_dex()) return shape;
  const DexMethod& from = made.dex();
  DexMethod& to = *shape.mutable_dex();
  to.set_form(from.form());
  to.set_sign(from.sign());
  to.set_train(from.train());
  to.set_allow_large_projection(from.allow_large_projection());
  if (from.has_projection()) to.set_projection(from.projection());
  if (from.has_bottleneck()) *to.mutable_bottleneck() = from.bottleneck();
  if (from.has_lora()) copy_lora(from.lora(), *to.mutable_lora());
  to.mutable_head_selection()->set_soft_floor(from.head_selection().soft_floor());
  return shape;
}

std::string method_of(const FineTuningJobSpec& spec) {
  const auto* oneof = FineTuningJobSpec::descriptor()->FindOneofByName("method");
  const auto* field = spec.GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  return field ? field->name() : "";
}

// λ of a job that begins where the adapter's is; an empty message for methods without a branch.
FineTuningJobSpec lambda_of(const StartAdapter& start) {
  FineTuningJobSpec out;
  if (!start.spec.has_dex()) return out;
  Lambda& lambda = *out.mutable_dex()->mutable_lambda();
  const auto schedule = start.spec.dex().lambda().schedule();
  const bool learned =
      schedule == Lambda::SCHEDULE_PAPER_EQ4 || schedule == Lambda::SCHEDULE_LEARNED;
  lambda.set_schedule(learned ? Lambda::SCHEDULE_LEARNED : Lambda::SCHEDULE_CONSTANT);
  if (!learned && start.lambda) lambda.set_value(*start.lambda);
  return out;
}

bool set_by_user(const Sources& sources, const std::string& path) {
  const auto found = sources.find(path);
  return found != sources.end() && found->second == "USER";
}

// What the user set otherwise than `fixed`, which only the adapter decides.
std::vector<Violation> differences(const FineTuningJobSpec& spec, const FineTuningJobSpec& fixed,
                                   const Sources& sources) {
  std::vector<Violation> out;
  for_each_set_field(fixed, [&](const std::string& path) {
    if (set_by_user(sources, path) && !same_field(spec, fixed, path))
      out.push_back({path, "is not the adapter's, which is " + field_text(fixed, path)});
  });
  return out;
}

void fix(const FineTuningJobSpec& fixed, FineTuningJobSpec& spec, Sources& sources) {
  fill_unset(fixed, spec, "MODEL", sources);
  for_each_set_field(fixed, [&](const std::string& path) { sources[path] = "MODEL"; });
}

}  // namespace

bool goes_on(const FineTuningJobSpec& spec) {
  return spec.model().starts_with("ft:");
}

std::string base_model_of(const std::string& model) {
  if (!model.starts_with("ft:")) return model;
  return model.substr(3, model.find(':', 3) - 3);
}

base::Status take_over(const StartAdapter& start, FineTuningJobSpec& spec, Sources& sources) {
  const std::string made_by = method_of(start.spec), asked = method_of(spec);
  if (publishes_model(start.spec)) {
    return mismatch(start.id, {{"model", "is a whole model, not an adapter (method " + made_by +
                                             " made it); serve it as a base model and train on "
                                             "that"}});
  }
  if (!asked.empty() && asked != made_by)
    return mismatch(start.id, {{asked, "is not the adapter's method, which is " + made_by}});
  const FineTuningJobSpec shape = shape_of(start.spec), lambda = lambda_of(start);
  if (lambda.dex().lambda().schedule() == Lambda::SCHEDULE_CONSTANT && !start.lambda)
    return mismatch(start.id, {{"model", "has no λ on record"}});
  auto violations = differences(spec, shape, sources);
  if (spec.hyperparameters().first_layer() > 0 && !shape.hyperparameters().has_first_layer())
    violations.push_back({"hyperparameters.first_layer", "is not the adapter's, which is 0"});
  for_each_set_field(spec, [&](const std::string& path) {
    if (!path.starts_with("dex.lambda.") || !set_by_user(sources, path)) return;
    if (!has_field(lambda, path) || !same_field(spec, lambda, path))
      violations.push_back({path, "has no effect here: λ goes on from the adapter's"});
  });
  if (!violations.empty()) return mismatch(start.id, violations);
  fix(shape, spec, sources);
  fix(lambda, spec, sources);
  if (spec.has_dex() && !spec.dex().has_preset() && start.spec.dex().has_preset()) {
    spec.mutable_dex()->set_preset(start.spec.dex().preset());
    sources["dex.preset"] = "MODEL";
  }
  if (!spec.kvo_only().has_preset() && start.spec.kvo_only().has_preset()) {
    spec.mutable_kvo_only()->set_preset(start.spec.kvo_only().preset());
    sources["kvo_only.preset"] = "MODEL";
  }
  return {};
}

}  // namespace dex::core
