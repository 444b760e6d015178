#include "client/cli/model_limits.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <ostream>
#include <sstream>

#include "client/cli/exit_code.h"

namespace dex::cli {

namespace {

std::string number(double value) {
  if (std::isinf(value)) return "any";
  std::ostringstream out;
  out.precision(10);
  out << value;
  return out.str();
}

std::string pools_of(const v1::ModelLimits& limits, const std::string& train) {
  std::string names;
  for (const auto& pool : limits.pools()) {
    if (std::find(pool.fits().begin(), pool.fits().end(), train) == pool.fits().end()) continue;
    names += (names.empty() ? "" : ", ") + pool.name();
  }
  return names.empty() ? "none" : names;
}

int show(Context& context, const std::string& model, const std::string& method) {
  const auto limits = context.client.model_limits(model, method);
  if (!limits.ok()) return context.output.failure(limits.status());
  if (context.output.format() != Format::kTable) {
    context.output.result(*limits, limits->model(), {});
    return kDone;
  }
  context.output.out() << render(model_limits_table(*limits), context.output.terminal()) << "\n"
                       << render(model_ranges_table(*limits), context.output.terminal())
                       << std::flush;
  return kDone;
}

}  // namespace

Table model_limits_table(const v1::ModelLimits& limits) {
  Table table = {{"TRAINS", "CLASS", "PARAMETERS", "ARTEFACT", "MEMORY FROM", "SERVED AT ONCE",
                  "FITS IN POOLS"}};
  for (const auto& artifact : limits.artifacts()) {
    const std::string train = artifact.train().empty() ? limits.method() : artifact.train();
    table.push_back({train, artifact.artifact_class(),
                     human_count(static_cast<double>(artifact.trained_parameters())),
                     human_bytes(static_cast<double>(artifact.artifact_bytes())),
                     human_bytes(static_cast<double>(artifact.least_memory_bytes())),
                     artifact.adapters_served() > 0 ? std::to_string(artifact.adapters_served())
                                                    : "as a base model",
                     pools_of(limits, train)});
  }
  return table;
}

Table model_ranges_table(const v1::ModelLimits& limits) {
  Table table = {{"FIELD", "FROM", "TO"}};
  for (const auto& range : limits.ranges()) {
    table.push_back({range.field(),
                     (range.above_minimum() ? "above " : "") + number(range.minimum()),
                     number(range.maximum())});
  }
  return table;
}

void add_model_limits(CLI::App& models, Action& action) {
  auto* verb = add_verb(models, "limits",
                        "what a job on a base model may ask for, how large what it publishes is, "
                        "and in which pools it fits",
                        "dexctl models limits smollm2-135m-instruct --method lora");
  auto model = std::make_shared<std::string>();
  auto method = std::make_shared<std::string>("dex");
  verb->add_option("name", *model, "model name")->required();
  verb->add_option("--method", *method, "dex (default), kvo_only, lora, adapter, full or diff");
  verb->callback(
      [&action, model, method] { action = [=](Context& c) { return show(c, *model, *method); }; });
}

}  // namespace dex::cli
