#include "services/gateway/routing/use_report.h"

#include <grpcpp/client_context.h>

#include <utility>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "services/base/signals.h"
#include "services/rpc/call.h"
#include "services/rpc/channel.h"

namespace dex::gateway {

namespace {
constexpr std::chrono::seconds kReportTime{5};
}

UseReport::UseReport(std::shared_ptr<grpc::Channel> scheduler, const base::Clock& clock,
                     std::chrono::milliseconds period)
    : scheduler_(std::move(scheduler)),
      clock_(clock),
      period_(period),
      thread_([this](const std::stop_token& stop) { work(stop); }) {}

UseReport::~UseReport() = default;

void UseReport::note_key(const std::string& key) {
  if (key.empty()) return;
  const int64_t now_ms = clock_.now_ms();
  const std::lock_guard lock(mutex_);
  keys_[key] = now_ms;
}

void UseReport::note_generation(const std::string& tenant, int64_t prompt_tokens,
                                int64_t generated_tokens) {
  const std::lock_guard lock(mutex_);
  Generated& sum = generated_[tenant];
  sum.prompt_tokens += prompt_tokens;
  sum.generated_tokens += generated_tokens;
  ++sum.generations;
}

// One report at a time: the next one is made when the one before has arrived.
void UseReport::work(const std::stop_token& stop) {
  std::optional<internal::v1::ReportUseRequest> report;
  while (!base::wait_for_stop(stop, period_.count())) {
    if (!report) report = take();
    if (report && send(*report)) report.reset();
  }
  // The last words: what waits for an answer, and what was noted since.
  for (int i = 0; i < 2; ++i) {
    if (!report) report = take();
    if (!report || !send(*report)) return;
    report.reset();
  }
}

std::optional<internal::v1::ReportUseRequest> UseReport::take() {
  std::unordered_map<std::string, int64_t> keys;
  std::unordered_map<std::string, Generated> generated;
  {
    const std::lock_guard lock(mutex_);
    keys.swap(keys_);
    generated.swap(generated_);
  }
  if (keys.empty() && generated.empty()) return std::nullopt;
  internal::v1::ReportUseRequest report;
  report.set_report_id(rpc::new_request_id());
  for (const auto& [id, ms] : keys) {
    auto& key = *report.add_keys();
    key.set_id(id);
    key.set_last_used_ms(ms);
  }
  for (const auto& [tenant, sum] : generated) {
    auto& row = *report.add_generated();
    row.set_tenant(tenant);
    row.set_prompt_tokens(sum.prompt_tokens);
    row.set_generated_tokens(sum.generated_tokens);
    row.set_generations(sum.generations);
  }
  return report;
}

bool UseReport::send(const internal::v1::ReportUseRequest& report) {
  grpc::ClientContext context;
  rpc::set_timeout(context, kReportTime);
  internal::v1::ReportUseResponse reply;
  return internal::v1::RouteService::NewStub(scheduler_)->ReportUse(&context, report, &reply).ok();
}

}  // namespace dex::gateway
