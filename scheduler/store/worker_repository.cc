#include "scheduler/store/worker_repository.h"

#include <set>

#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/alphabet.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

constexpr size_t kWorkerPage = 50;  // a worker's record may have kilobytes of what its engines hold
constexpr size_t kAdapterPage = 500;

}  // namespace

base::Result<WorkerRepository::Sign> WorkerRepository::sign(std::vector<std::string> args) {
  DEX_RETURN_IF_ERROR(check_word("worker", args.at(1)));
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("worker", std::move(args)));
  Sign sign;
  if (reply.str(0) == "UNKNOWN") {
    sign.unknown = true;
    return sign;
  }
  if (reply.str(0) == "BADARG")
    return base::invalid_argument("INVALID_FIELD", "worker refused: " + reply.str(1));
  if (reply.str(0) != "OK") return unexpected("worker", reply);
  sign.desired_revision = reply.num(1);
  sign.routes_revision = reply.num(2);
  sign.draining = reply.num(3) == 1;
  return sign;
}

base::Result<WorkerRepository::Sign> WorkerRepository::enlist(const WorkerRecord& worker) {
  for (const std::string& pool : worker.pools) DEX_RETURN_IF_ERROR(check_name("pools", pool));
  return sign({"register", worker.id, worker.host, worker.version, join_words(worker.pools),
               std::to_string(worker.slots), worker.info, join_words(worker.models)});
}
base::Result<WorkerRepository::Sign> WorkerRepository::alive(
    const std::string& id, const std::string& live, std::optional<int64_t> clock_ahead_ms) {
  return sign({"alive", id, live, clock_ahead_ms ? std::to_string(*clock_ahead_ms) : ""});
}
base::Result<WorkerRepository::Sign> WorkerRepository::drain(const std::string& id) {
  return sign({"drain", id});
}
base::Result<WorkerRepository::Sign> WorkerRepository::gone(const std::string& id) {
  return sign({"gone", id});
}

base::Result<std::vector<WorkerRecord>> WorkerRepository::workers() {
  std::vector<WorkerRecord> workers;
  std::set<std::string> seen;  // a worker that beats meanwhile moves to a later page
  std::string ms, id;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const Reply page,
                         store_.run("routes", {"workers", std::to_string(kWorkerPage), ms, id}));
    if (page.str(0) != "OK") return unexpected("routes", page);
    for (size_t i = 2; i < page.elements.size(); ++i) {
      const Reply& row = page.at(i);
      id = row.str(0);
      ms = row.str(1);
      const bool there = !row.at(2).elements.empty();  // else it went meanwhile
      if (there && seen.insert(id).second) workers.push_back(worker_from(row.at(2).fields()));
    }
    if (page.elements.size() < 2 + kWorkerPage) return workers;
  }
}

base::Status WorkerRepository::each_routable(const std::string& op, const TakeRow& take) {
  std::string tenant, ms, id;
  while (true) {
    DEX_ASSIGN_OR_RETURN(const Reply page,
                         store_.run("routes", {op, std::to_string(kAdapterPage), tenant, ms, id}));
    if (page.str(0) != "OK") return unexpected("routes", page);
    for (size_t i = 2; i < page.elements.size(); ++i) {
      const Reply& row = page.at(i);
      id = row.str(0);
      ms = row.str(1);
      tenant = row.str(2);
      if (row.str(3).empty()) continue;  // it went meanwhile
      AdapterRecord adapter;
      adapter.tenant = tenant;
      adapter.uri = row.str(3);
      adapter.sha256 = row.str(4);
      adapter.disabled = row.str(5) == "1";
      take(row, std::move(adapter));
    }
    if (page.elements.size() < 2 + kAdapterPage) return {};
  }
}

base::Result<WorkerRepository::Routes> WorkerRepository::routes() {
  Routes routes;
  DEX_ASSIGN_OR_RETURN(routes.revision, routes_revision());
  DEX_ASSIGN_OR_RETURN(routes.workers, workers());
  DEX_RETURN_IF_ERROR(each_routable("adapters", [&](const Reply& row, AdapterRecord adapter) {
    adapter.id = row.str(0);
    routes.adapters.push_back(std::move(adapter));
  }));
  DEX_RETURN_IF_ERROR(each_routable("aliases", [&](const Reply& row, AdapterRecord adapter) {
    adapter.id = row.str(6);
    routes.aliases.push_back({row.str(0), std::move(adapter)});
  }));
  DEX_ASSIGN_OR_RETURN(routes.keys, KeyRepository(store_).all());
  return routes;
}

base::Result<int64_t> WorkerRepository::routes_revision() {
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.command({"HGET", store_.key("cfg"), "routes_rev"}));
  return reply.as_int();
}

}  // namespace dex::store
