#include "client/cli/study_plan.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "proto/deterministic_bytes.h"
#include "services/base/sha256.h"

namespace dex::cli {

namespace {

constexpr size_t kMostSeeds = 64;

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

}  // namespace

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
  flags.method = run.method;
  flags.preset = run.method == "dex" ? plan.preset : "";
  flags.seed = std::to_string(run.seed);
  // lora.r and the like are for that method's runs alone.
  std::erase_if(flags.sets, [&](const std::string& set) {
    const auto owner = method_of(set.substr(0, set.find('=')));
    return !owner.empty() && owner != run.method;
  });
  return make_spec(flags);
}

Decoding decoding_of(const v1::FineTuningJobSpec& effective) {
  using Dex = v1::DexMethod;
  const Dex& dex = effective.dex();
  // LoRA terms and bottleneck adapters stay beside the base's products.
  const bool terms = effective.has_lora() || effective.has_adapter() ||
                     (effective.has_dex() && dex.train() == Dex::TRAIN_LORA_DEX);
  if (terms) return {};
  if (!effective.has_dex() || dex.train() == Dex::TRAIN_FULL_DEX) return {.merged = true};
  const auto activation = dex.bottleneck().activation();
  const bool linear = dex.projection() != Dex::PROJECTION_BOTTLENECK ||
                      activation == Dex::Bottleneck::ACTIVATION_UNSPECIFIED ||
                      activation == Dex::Bottleneck::ACTIVATION_NONE;
  const bool folds =
      linear && dex.form() != Dex::FORM_PREFIX_MEAN && dex.form() != Dex::FORM_UNIFORM_MAP;
  return {.merged = folds, .scaled = folds};
}

std::string request_id_of(const v1::FineTuningJobSpec& spec) {
  return "study-" + base::sha256_hex(proto::deterministic_bytes(spec)).substr(0, 48);
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
    std::replace(part.begin(), part.end(), '-', '_');
    if (std::find(std::begin(kMethods), std::end(kMethods), part) == std::end(kMethods)) {
      return bad("--methods: \"" + part + "\" is not one of " + method_names());
    }
    if (std::find(methods.begin(), methods.end(), part) == methods.end()) methods.push_back(part);
  }
  if (methods.empty()) return bad("--methods names none; e.g. dex,kvo_only");
  return methods;
}

}  // namespace dex::cli
