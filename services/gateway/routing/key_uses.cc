#include "services/gateway/routing/key_uses.h"

#include <grpcpp/client_context.h>

#include <algorithm>
#include <utility>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "services/base/signals.h"
#include "services/rpc/channel.h"

namespace dex::gateway {

namespace {
constexpr std::chrono::seconds kReportTime{5};
}

KeyUses::KeyUses(std::shared_ptr<grpc::Channel> scheduler, const base::Clock& clock,
                 std::chrono::milliseconds period)
    : scheduler_(std::move(scheduler)),
      clock_(clock),
      period_(period),
      thread_([this](const std::stop_token& stop) {
        while (!base::wait_for_stop(stop, period_.count())) {
          Uses uses;
          {
            const std::lock_guard lock(mutex_);
            uses.swap(uses_);
          }
          if (uses.empty() || report(uses)) continue;
          const std::lock_guard lock(mutex_);
          for (const auto& [key, ms] : uses) {
            int64_t& last = uses_[key];
            last = std::max(last, ms);
          }
        }
      }) {}

KeyUses::~KeyUses() = default;

void KeyUses::note(const std::string& key) {
  if (key.empty()) return;
  const int64_t now_ms = clock_.now_ms();
  const std::lock_guard lock(mutex_);
  uses_[key] = now_ms;
}

bool KeyUses::report(const Uses& uses) {
  internal::v1::ReportKeyUseRequest request;
  for (const auto& [key, ms] : uses) {
    auto& use = *request.add_uses();
    use.set_key(key);
    use.set_last_used_ms(ms);
  }
  grpc::ClientContext context;
  rpc::set_timeout(context, kReportTime);
  internal::v1::ReportKeyUseResponse reply;
  return internal::v1::RouteService::NewStub(scheduler_)
      ->ReportKeyUse(&context, request, &reply)
      .ok();
}

}  // namespace dex::gateway
