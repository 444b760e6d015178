#include "scheduler/store/operator_repository.h"

#include <algorithm>
#include <cstdlib>

#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

double real(const Reply& reply, size_t i) {
  return std::atof(reply.str(i).c_str());
}

template <typename Number>
std::string text_or_nothing(const std::optional<Number>& value) {
  return value ? std::to_string(*value) : "";
}

base::Status worker_not_found(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no worker '" + shown(id) + "'.")
      .with_metadata("resource_type", "worker")
      .with_metadata("resource_name", shown(id));
}

}  // namespace

base::Result<OperatorRepository::Quota> OperatorRepository::quota(const std::string& tenant) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("quota", {tenant}));
  if (reply.str(0) != "OK") return unexpected("quota", reply);
  Quota quota;
  quota.weight = real(reply, 1);
  quota.max_queued = reply.num(2);
  quota.max_running = reply.num(3);
  quota.seconds_a_day = real(reply, 4);
  quota.seconds_today = real(reply, 5);
  quota.queued = reply.num(6);
  quota.running = reply.num(7);
  quota.revision = reply.str(8);
  return quota;
}

base::Result<bool> OperatorRepository::set_quota(const std::string& tenant,
                                                 const QuotaChange& change,
                                                 const std::string& caller,
                                                 const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(tenant));
  DEX_RETURN_IF_ERROR(check_tenant(caller));
  DEX_RETURN_IF_ERROR(check_request(request));
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("tenant", {tenant, text_or_nothing(change.weight),
                            text_or_nothing(change.max_queued), text_or_nothing(change.max_running),
                            text_or_nothing(change.seconds_a_day), change.etag, caller, request.id,
                            request.digest, std::to_string(store_.times().idempotency_ms)}));
  const std::string& word = reply.str(0);
  if (word == "OK") return false;
  if (word == "DUP") return true;
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word != "STALE") return unexpected("tenant", reply);
  return base::Status(
             base::Code::kAborted, "ETAG_MISMATCH",
             "The quota of '" + tenant + "' has changed since: its etag is " + reply.str(1) + ".")
      .with_metadata("etag", reply.str(1));
}

base::Result<std::vector<OperatorRepository::SeenWorker>> OperatorRepository::page(
    const std::string& after, int count, const std::string& only) {
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.run("workers", {after, std::to_string(count), only}));
  if (reply.str(0) != "OK") return unexpected("workers", reply);
  std::vector<SeenWorker> workers;
  for (size_t i = 1; i < reply.elements.size(); ++i) {
    const Reply& row = reply.at(i);
    SeenWorker& seen = workers.emplace_back();
    seen.record = worker_from(row.at(2).fields());
    seen.heartbeat_age_seconds = static_cast<double>(row.num(1)) / 1000;
    for (const Reply& attempt : row.at(3).elements)
      seen.attempts.push_back({attempt.str(0), attempt.str(1)});
  }
  return workers;
}

base::Result<std::vector<OperatorRepository::SeenWorker>> OperatorRepository::workers(
    const std::string& after, int count) {
  return page(after, count, "");
}

base::Result<OperatorRepository::SeenWorker> OperatorRepository::worker(const std::string& id) {
  if (!is_word(id)) return worker_not_found(id);
  DEX_ASSIGN_OR_RETURN(auto found, page("", 1, id));
  if (found.empty()) return worker_not_found(id);
  return std::move(found.front());
}

base::Result<bool> OperatorRepository::cordon(const std::string& id, bool on,
                                              const std::string& caller,
                                              const RequestKey& request) {
  DEX_RETURN_IF_ERROR(check_tenant(caller));
  DEX_RETURN_IF_ERROR(check_request(request));
  if (!is_word(id)) return worker_not_found(id);
  DEX_ASSIGN_OR_RETURN(
      const Reply reply,
      store_.run("worker", {"cordon", id, on ? "1" : "0", caller, request.id, request.digest,
                            std::to_string(store_.times().idempotency_ms)}));
  const std::string& word = reply.str(0);
  if (word == "OK") return false;
  if (word == "DUP") return true;
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "UNKNOWN") return worker_not_found(id);
  return unexpected("worker", reply);
}

base::Result<std::vector<std::string>> OperatorRepository::pools() {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.command({"SMEMBERS", store_.key("pools")}));
  std::vector<std::string> names;
  for (const Reply& name : reply.elements) names.push_back(name.text);
  std::sort(names.begin(), names.end());
  return names;
}

base::Result<OperatorRepository::PoolQueue> OperatorRepository::queue(const std::string& pool,
                                                                      int count) {
  DEX_RETURN_IF_ERROR(check_name("pool", pool));
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("queue", {pool, std::to_string(count)}));
  if (reply.str(0) != "OK") return unexpected("queue", reply);
  PoolQueue queue;
  queue.ready = reply.num(1);
  queue.running = reply.num(2);
  queue.oldest_seconds = real(reply, 3);
  queue.workers = reply.num(4);
  for (size_t i = 5; i < reply.elements.size(); ++i) {
    const Reply& row = reply.at(i);
    queue.order.push_back({row.str(0), row.str(1), row.str(2), static_cast<int>(row.num(3)),
                           static_cast<double>(row.num(4)) / 1000, row.num(5) == 1, row.num(6) == 1,
                           real(row, 7)});
  }
  return queue;
}

}  // namespace dex::store
