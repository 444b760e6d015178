#include "scheduler/server/operations.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "scheduler/server/asked_tenant.h"
#include "scheduler/server/job_id.h"
#include "scheduler/server/operations_view.h"
#include "scheduler/server/page.h"
#include "scheduler/store/alphabet.h"

namespace dex::server {

namespace {

constexpr double kLeastWeight = 0.001, kMostWeight = 1000;  // six decimals are kept
constexpr uint32_t kMostQueued = 100'000;  // what a store of 1 GiB is measured with (jobs.md P17)
constexpr uint32_t kMostRunning = 10'000;
constexpr double kMostSeconds = 86'400.0 * 10'000;  // a day of ten thousand devices
constexpr int kShownJobs = 20, kMostShownJobs = 100;

base::Status no_such(const std::string& type, const std::string& name) {
  return base::not_found("RESOURCE_NOT_FOUND",
                         "There is no " + type + " '" + store::shown(name) + "'.")
      .with_metadata("resource_type", type)
      .with_metadata("resource_name", store::shown(name));
}

// Every bad value at once.
base::Status check_values(const v1::SetQuotaRequest& request) {
  if (!request.has_weight() && !request.has_max_queued() && !request.has_max_running() &&
      !request.has_device_seconds_per_day()) {
    return base::bad_field("MISSING_FIELD", "weight",
                           "is missing, and so are max_queued, max_running and "
                           "device_seconds_per_day: nothing is set");
  }
  std::vector<std::pair<std::string, std::string>> bad;
  const auto demand = [&bad](bool good, const char* field, const std::string& range,
                             const std::string& value) {
    if (!good) bad.emplace_back(field, "must be " + range + ", got " + value);
  };
  const double weight = request.weight(), seconds = request.device_seconds_per_day();
  if (request.has_weight()) {
    demand(weight >= kLeastWeight && weight <= kMostWeight, "weight", "0.001 to 1000",
           std::to_string(weight));
  }
  demand(request.max_queued() <= kMostQueued, "max_queued", "0 to 100000",
         std::to_string(request.max_queued()));
  demand(request.max_running() <= kMostRunning, "max_running", "0 to 10000",
         std::to_string(request.max_running()));
  demand(seconds >= 0 && seconds <= kMostSeconds, "device_seconds_per_day",
         "0 (no limit) to 864000000", std::to_string(seconds));
  if (bad.empty()) return {};
  std::string message;
  for (const auto& [field, what] : bad)
    message.append(message.empty() ? "" : "; ").append(field).append(" ").append(what);
  base::Status status(base::Code::kInvalidArgument, "VALUE_OUT_OF_RANGE", message);
  for (const auto& [field, what] : bad) status = std::move(status).with_violation(field, what);
  return status;
}

}  // namespace

base::Result<v1::Quota> Operations::quota(const auth::Principal& who,
                                          const v1::GetQuotaRequest& request) {
  DEX_ASSIGN_OR_RETURN(const std::string tenant, asked_tenant(who, request.tenant()));
  DEX_ASSIGN_OR_RETURN(const auto quota, parts_.operators.quota(tenant));
  return quota_view(tenant, quota);
}

base::Result<Answer<v1::Quota>> Operations::set_quota(const auth::Principal& who,
                                                      const v1::SetQuotaRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require_operator(who));
  DEX_ASSIGN_OR_RETURN(const std::string tenant, asked_tenant(who, request.tenant()));
  DEX_RETURN_IF_ERROR(check_values(request));
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  store::OperatorRepository::QuotaChange change;
  if (request.has_weight()) change.weight = request.weight();
  if (request.has_max_queued()) change.max_queued = request.max_queued();
  if (request.has_max_running()) change.max_running = request.max_running();
  if (request.has_device_seconds_per_day()) change.seconds_a_day = request.device_seconds_per_day();
  change.etag = request.etag();
  DEX_ASSIGN_OR_RETURN(const bool replayed,
                       parts_.operators.set_quota(tenant, change, who.tenant(), key));
  if (changed_) changed_();
  DEX_ASSIGN_OR_RETURN(const auto quota, parts_.operators.quota(tenant));
  return Answer<v1::Quota>{quota_view(tenant, quota), replayed};
}

base::Result<v1::ListWorkersResponse> Operations::list_workers(
    const auth::Principal& who, const v1::ListWorkersRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  DEX_ASSIGN_OR_RETURN(const int size, page_size(request.page_size()));
  if (!request.page_token().empty() && !store::is_word(request.page_token())) {
    return base::invalid_argument("INVALID_CURSOR", "page_token is not one that a list has given")
        .with_violation("page_token", "is not one that a list has given");
  }
  v1::ListWorkersResponse response;
  std::string after = request.page_token();
  while (true) {
    const int wanted = std::min(size - response.workers_size(), kStorePage);
    if (wanted == 0 || response.ByteSizeLong() > kListBytes) {
      response.set_next_page_token(after);
      return response;
    }
    DEX_ASSIGN_OR_RETURN(const auto rows, parts_.operators.workers(after, wanted));
    for (const auto& row : rows) *response.add_workers() = worker_view(who.tenant(), row);
    if (static_cast<int>(rows.size()) < wanted) return response;
    after = rows.back().record.id;
  }
}

base::Result<Answer<v1::Worker>> Operations::update_worker(const auth::Principal& who,
                                                           const v1::UpdateWorkerRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require_operator(who));
  if (request.id().empty()) return missing("id");
  if (!request.has_draining()) return missing("draining");
  DEX_ASSIGN_OR_RETURN(const auto key, identity_of(request, parts_.ids));
  DEX_ASSIGN_OR_RETURN(
      const bool replayed,
      parts_.operators.cordon(request.id(), request.draining(), who.tenant(), key));
  if (changed_) changed_();
  DEX_ASSIGN_OR_RETURN(const auto worker, parts_.operators.worker(request.id()));
  return Answer<v1::Worker>{worker_view(who.tenant(), worker), replayed};
}

base::Result<v1::Queue> Operations::queue(const auth::Principal& who,
                                          const v1::GetQueueRequest& request) {
  DEX_RETURN_IF_ERROR(auth::require(who, auth::Scope::kAdmin));
  if (request.count() < 0 || request.count() > kMostShownJobs)
    return base::bad_field("VALUE_OUT_OF_RANGE", "count", "must be 0 (20) to 100");
  DEX_ASSIGN_OR_RETURN(auto pools, parts_.operators.pools());
  if (!request.pool().empty()) {
    if (std::find(pools.begin(), pools.end(), request.pool()) == pools.end())
      return no_such("pool", request.pool());
    pools = {request.pool()};
  }
  v1::Queue view;
  for (const std::string& pool : pools) {
    DEX_ASSIGN_OR_RETURN(
        const auto queue,
        parts_.operators.queue(pool, request.count() == 0 ? kShownJobs : request.count()));
    *view.add_pools() = pool_view(who.tenant(), pool, queue);
  }
  return view;
}

}  // namespace dex::server
