// `dexctl usage`: what a tenant has used, by day.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"

namespace dex::cli {

namespace {

constexpr int kMostDays = 400;

Table usage_table(const v1::GetUsageResponse& usage) {
  Table table = {{"DAY (UTC)", "DEVICE SECONDS", "TRAINED TOKENS", "GENERATIONS", "PROMPT TOKENS",
                  "GENERATED TOKENS"}};
  for (const auto& day : usage.days()) {
    char seconds[32];
    std::snprintf(seconds, sizeof seconds, "%.1f", day.device_seconds());
    table.push_back({day.date(), seconds, std::to_string(day.trained_tokens()),
                     std::to_string(day.generations()), std::to_string(day.prompt_tokens()),
                     std::to_string(day.generated_tokens())});
  }
  return table;
}

int show(Context& context, const v1::GetUsageRequest& request) {
  const auto usage = context.client.usage(request);
  if (!usage.ok()) return context.output.failure(usage.status());
  std::vector<std::string> days;
  for (const auto& day : usage->days()) days.push_back(day.date());
  context.output.list(*usage, days, usage_table(*usage),
                      "tenant " + usage->tenant() + " has used nothing in these days");
  return kDone;
}

}  // namespace

void add_usage(CLI::App& app, Action& action) {
  auto* verb = add_verb(app, "usage",
                        "what a tenant has used, by day: trainings when they end, "
                        "generations within a minute",
                        "dexctl usage\ndexctl usage team-a --days 7");
  auto request = std::make_shared<v1::GetUsageRequest>();
  auto tenant = std::make_shared<std::string>();
  auto days = std::make_shared<int>(0);
  verb->add_option("tenant", *tenant, "default: yours");
  verb->add_option("--days", *days, "with today as the last (30, at most 400)")
      ->check(CLI::Range(1, kMostDays));
  verb->callback([&action, request, tenant, days] {
    request->set_tenant(*tenant);
    request->set_days(*days);
    action = [request](Context& c) { return show(c, *request); };
  });
}

}  // namespace dex::cli
