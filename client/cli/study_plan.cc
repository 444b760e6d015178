#include "client/cli/study_plan.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "client/cli/evaluation_flags.h"
#include "client/cli/names.h"
#include "proto/deterministic_bytes.h"
#include "services/base/sha256.h"

namespace dex::cli {

namespace {

constexpr size_t kMostSeeds = 64;
constexpr const char* kPlus = "dex:plus";
constexpr const char* kMinus = "dex:minus";

base::Status bad(const std::string& what) {
  return base::invalid_argument("INVALID_FIELD", what);
}

bool number(std::string_view text, uint64_t& out) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && end == text.data() + text.size() && out > 0;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, ',');) parts.push_back(part);
  return parts;
}

bool among(const std::vector<std::string>& methods, const std::string& method) {
  return std::find(methods.begin(), methods.end(), method) != methods.end();
}

template <typename Enum>
std::vector<std::string> short_names() {
  std::vector<std::string> names;
  const auto* type = google::protobuf::GetEnumDescriptor<Enum>();
  for (int i = 1; i < type->value_count(); ++i) names.push_back(short_name(*type->value(i)));
  return names;
}

// What "dex:<variant>" sets, as --set takes it; "" where there is no such variant.
std::string set_of_variant(const std::string& variant) {
  if (among(short_names<v1::DexMethod::Train>(), variant)) return "dex.train=" + variant;
  if (among(short_names<v1::DexMethod::Sign>(), variant)) return "dex.sign=" + variant;
  return "";
}

std::string variant_of(const std::string& method) {
  const size_t colon = method.find(':');
  return colon == std::string::npos ? "" : method.substr(colon + 1);
}

base::Status check_method(const std::string& method) {
  const std::string base_method = spec_method(method);
  if (std::find(std::begin(kMethods), std::end(kMethods), base_method) == std::end(kMethods))
    return bad("--methods: \"" + method + "\" is not one of " + method_names());
  if (method == base_method) return {};
  if (base_method == "dex" && !set_of_variant(variant_of(method)).empty()) return {};
  std::string names;
  for (const auto& name : short_names<v1::DexMethod::Train>()) names += "dex:" + name + ", ";
  return bad("--methods: \"" + method + "\" is no variant; there are " + names + kPlus + ", " +
             kMinus);
}

// How a job draws its rows, as bytes to compare.
std::string drawn_by(const v1::FineTuningJobSpec& spec) {
  v1::Hyperparameters rows;
  rows.set_group_by(spec.hyperparameters().group_by());
  *rows.mutable_group_weights() = spec.hyperparameters().group_weights();
  return proto::deterministic_bytes(rows);
}

template <typename Job>
bool has_ended_for_nothing(const Job& job) {
  if (job.state() == v1::JOB_STATE_CANCELLED) return true;
  return job.state() == v1::JOB_STATE_FAILED &&
         (job.error().retryable() || job.error().category() == "SYSTEM");
}

template <typename Job>
std::string failure_text(const Job& job, const std::string& what) {
  if (job.state() == v1::JOB_STATE_SUCCEEDED) return "";
  std::string text = what + " was cancelled";
  if (job.has_error()) {
    text = job.error().code() + ": " + job.error().message();
  } else if (job.state() != v1::JOB_STATE_CANCELLED) {
    text = what + " did not succeed";
  }
  return text + (has_ended_for_nothing(job) ? " (the same command tries it again)"
                                            : " (the same command does not try it again)");
}

}  // namespace

std::string spec_method(const std::string& method) {
  return method.substr(0, method.find(':'));
}

bool is_sign_variant(const std::string& method) {
  return method == kPlus || method == kMinus;
}

std::string noise_partner(const std::vector<std::string>& methods, const std::string& method) {
  if (!is_sign_variant(method)) return "";
  if (among(methods, "dex")) return "dex";
  return method == kPlus && among(methods, kMinus) ? kMinus : "";
}

bool add_control(std::vector<std::string>& methods) {
  const bool dex = std::any_of(methods.begin(), methods.end(),
                               [](const auto& each) { return spec_method(each) == "dex"; });
  if (!dex || among(methods, kControl)) return false;
  methods.emplace_back(kControl);
  return true;
}

base::Status check_same_rows(
    const std::vector<std::pair<std::string, v1::FineTuningJobSpec>>& effective) {
  for (const auto& [method, spec] : effective) {
    const auto& [first, first_spec] = effective.front();
    if (drawn_by(spec) == drawn_by(first_spec)) continue;
    const auto by = [](const v1::FineTuningJobSpec& each) {
      return short_name(each.hyperparameters().group_by());
    };
    const std::string weights = by(spec) == by(first_spec) ? " with other weights" : "";
    return bad("--preset: " + first + " has hyperparameters.group_by " + by(first_spec) + " and " +
               method + " has " + by(spec) + weights +
               ", so they would not be trained on the same rows; give all the same with --set "
               "hyperparameters.group_by=language (or tag, none)");
  }
  return {};
}

base::Status check_distinct(
    const std::vector<std::pair<std::string, v1::FineTuningJobSpec>>& effective) {
  for (size_t i = 0; i < effective.size(); ++i) {
    const std::string bytes = proto::deterministic_bytes(effective[i].second);
    for (size_t j = 0; j < i; ++j) {
      if (proto::deterministic_bytes(effective[j].second) != bytes) continue;
      return bad("--methods: " + effective[i].first + " asks for what " + effective[j].first +
                 " does already; leave one of them out" +
                 (is_sign_variant(effective[i].first) || is_sign_variant(effective[j].first)
                      ? ", or take the other sign"
                      : ""));
    }
  }
  return {};
}

std::vector<StudyRun> runs_of(const StudyPlan& plan) {
  std::vector<StudyRun> runs;
  for (const uint64_t seed : plan.seeds) {
    for (const auto& method : plan.methods) runs.push_back({method, seed});
  }
  return runs;
}

base::Result<v1::FineTuningJobSpec> spec_of(const StudyPlan& plan, const StudyRun& run) {
  if (plan.common.max_steps.empty()) {
    return bad("--max-steps is needed: equal budgets need one number of updates for all methods");
  }
  SpecFlags flags = plan.common;
  flags.method = spec_method(run.method);
  // The control is the same training without the branch, so the same rates (method.md §2.7).
  flags.preset = flags.method == "dex" || flags.method == kControl ? plan.preset : "";
  flags.seed = std::to_string(run.seed);
  // lora.r and the like are for that method's runs alone.
  std::erase_if(flags.sets, [&](const std::string& set) {
    const auto owner = method_of(set.substr(0, set.find('=')));
    return !owner.empty() && owner != flags.method;
  });
  const std::string variant = variant_of(run.method);
  if (!variant.empty()) flags.sets.push_back(set_of_variant(variant));
  return make_spec(flags);
}

Decoding decoding_of(const v1::FineTuningJobSpec& effective) {
  using Dex = v1::DexMethod;
  const Dex& dex = effective.dex();
  // LoRA terms and bottleneck adapters stay beside the base's products.
  const bool terms = effective.has_lora() || effective.has_adapter() ||
                     (effective.has_dex() && dex.train() == Dex::TRAIN_LORA_DEX);
  if (terms) return {};
  if (effective.has_diff()) return {.whole = true};  // with a second attention map
  if (effective.has_full() || dex.train() == Dex::TRAIN_FULL_DEX)
    return {.merged = true, .whole = true};
  if (!effective.has_dex()) return {.merged = true};
  const auto activation = dex.bottleneck().activation();
  const bool linear = dex.projection() != Dex::PROJECTION_BOTTLENECK ||
                      activation == Dex::Bottleneck::ACTIVATION_UNSPECIFIED ||
                      activation == Dex::Bottleneck::ACTIVATION_NONE;
  const bool folds =
      linear && dex.form() != Dex::FORM_PREFIX_MEAN && dex.form() != Dex::FORM_UNIFORM_MAP;
  return {.merged = folds, .scaled = folds};
}

v1::EvaluationSpec evaluation_of(const StudyPlan& plan, const std::string& adapter) {
  v1::EvaluationSpec spec;
  const std::string& named = adapter.empty() ? plan.common.model : adapter;
  auto& base = *spec.add_subjects();
  base.set_model(named.starts_with("ft:") ? base_model_of(named) : named);
  base.set_label("base");
  if (!adapter.empty()) {
    auto& result = *spec.add_subjects();
    result.set_adapter(adapter);
    result.set_label("result");
  }
  for (const StudyTask& each : plan.tasks) *spec.add_tasks() = each.task;
  return spec;
}

std::string request_id_of(const google::protobuf::MessageLite& spec) {
  return "study-" + base::sha256_hex(proto::deterministic_bytes(spec)).substr(0, 48);
}

std::string request_id_after(const std::string& request_id, const std::string& job) {
  return "study-" + base::sha256_hex(request_id + "\n" + job).substr(0, 48);
}

bool is_tried_again(const v1::FineTuningJob& job) {
  return has_ended_for_nothing(job);
}

bool is_tried_again(const v1::Evaluation& evaluation) {
  return has_ended_for_nothing(evaluation);
}

std::string failure_of(const v1::FineTuningJob& job) {
  return failure_text(job, "the job");
}

std::string failure_of(const v1::Evaluation& evaluation) {
  return failure_text(evaluation, "the evaluation");
}

base::Result<std::vector<uint64_t>> parse_seeds(const std::string& text) {
  std::vector<uint64_t> seeds;
  for (const auto& part : split(text)) {
    const size_t dash = part.find('-');
    uint64_t first = 0, last = 0;
    const bool good = dash == std::string::npos ? number(part, first) && number(part, last)
                                                : number(part.substr(0, dash), first) &&
                                                      number(part.substr(dash + 1), last);
    if (!good || last < first || last - first >= kMostSeeds) {
      return bad("--seeds wants numbers from 1 up, like 1,2,3 or 1-5, got \"" + part + "\"");
    }
    for (uint64_t seed = first; seed <= last; ++seed) seeds.push_back(seed);
  }
  std::sort(seeds.begin(), seeds.end());
  seeds.erase(std::unique(seeds.begin(), seeds.end()), seeds.end());
  if (seeds.empty() || seeds.size() > kMostSeeds) {
    return bad("--seeds wants 1 to " + std::to_string(kMostSeeds) + " seeds, got \"" + text + "\"");
  }
  return seeds;
}

base::Result<std::vector<std::string>> parse_methods(const std::string& text) {
  std::vector<std::string> methods;
  for (auto part : split(text)) {
    std::replace_if(
        part.begin(), part.end(), [](char c) { return c == '-' || c == '+'; }, '_');
    DEX_RETURN_IF_ERROR(check_method(part));
    if (!among(methods, part)) methods.push_back(part);
  }
  if (methods.empty()) return bad("--methods names none; e.g. dex,kvo_only");
  return methods;
}

}  // namespace dex::cli
