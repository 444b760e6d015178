#include "scheduler/server/usage.h"

#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "scheduler/server/asked_tenant.h"

namespace dex::server {

namespace {

constexpr int kStandardDays = 30, kMostDays = 400;

// "2026-11-30" of a number of days since 1970.
std::string date_of(int64_t day) {
  const std::chrono::year_month_day date{std::chrono::sys_days{std::chrono::days{day}}};
  char text[32];
  std::snprintf(text, sizeof text, "%04d-%02u-%02u", static_cast<int>(date.year()),
                static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()));
  return text;
}

}  // namespace

base::Result<v1::GetUsageResponse> Usage::get(const auth::Principal& who,
                                              const v1::GetUsageRequest& request) {
  DEX_ASSIGN_OR_RETURN(const std::string tenant, asked_tenant(who, request.tenant()));
  if (request.days() < 0 || request.days() > kMostDays)
    return base::bad_field("VALUE_OUT_OF_RANGE", "days", "must be 0 (30) to 400");
  const int count = request.days() == 0 ? kStandardDays : request.days();
  DEX_ASSIGN_OR_RETURN(const auto days, usage_.days(tenant, count));
  v1::GetUsageResponse response;
  response.set_tenant(tenant);
  for (const auto& day : days) {
    auto& view = *response.add_days();
    view.set_date(date_of(day.day));
    view.set_trained_tokens(day.trained_tokens);
    view.set_device_seconds(day.device_seconds);
    view.set_generations(day.generations);
    view.set_prompt_tokens(day.prompt_tokens);
    view.set_generated_tokens(day.generated_tokens);
  }
  return response;
}

base::Status Usage::report(const internal::v1::ReportUseRequest& request) {
  std::vector<store::UsageRepository::Generated> rows;
  for (const auto& row : request.generated()) {
    rows.push_back({row.tenant(), row.prompt_tokens(), row.generated_tokens(), row.generations()});
  }
  if (rows.empty()) return {};
  return usage_.add(request.report_id(), rows);
}

}  // namespace dex::server
