#include "scheduler/store/worker_repository.h"

#include "scheduler/store/adapter_repository.h"
#include "scheduler/store/job_fields.h"

namespace dex::store {

namespace {

WorkerRecord worker_from(const Fields& f) {
  WorkerRecord worker;
  worker.id = text(f, "id");
  worker.host = text(f, "host");
  worker.version = text(f, "version");
  worker.state = text(f, "state");
  worker.pools = split_words(text(f, "pools"));
  worker.slots = static_cast<int>(number(f, "slots"));
  worker.models = split_words(text(f, "models"));
  worker.info = text(f, "info");
  worker.live = text(f, "live");
  return worker;
}

}  // namespace

base::Result<WorkerRepository::Sign> WorkerRepository::sign(std::vector<std::string> args) {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("worker", std::move(args)));
  Sign sign;
  if (reply.str(0) == "UNKNOWN") {
    sign.unknown = true;
    return sign;
  }
  if (reply.str(0) != "OK") return unexpected("worker", reply);
  sign.desired_revision = reply.num(1);
  sign.routes_revision = reply.num(2);
  sign.draining = reply.num(3) == 1;
  return sign;
}

base::Result<WorkerRepository::Sign> WorkerRepository::enlist(const WorkerRecord& worker) {
  return sign({"register", worker.id, worker.host, worker.version, join_words(worker.pools),
               std::to_string(worker.slots), worker.info, join_words(worker.models)});
}
base::Result<WorkerRepository::Sign> WorkerRepository::alive(const std::string& id,
                                                             const std::string& live) {
  return sign({"alive", id, live});
}
base::Result<WorkerRepository::Sign> WorkerRepository::drain(const std::string& id) {
  return sign({"drain", id});
}
base::Result<WorkerRepository::Sign> WorkerRepository::gone(const std::string& id) {
  return sign({"gone", id});
}

base::Result<WorkerRepository::Routes> WorkerRepository::routes() {
  DEX_ASSIGN_OR_RETURN(const Reply reply, store_.run("routes", {}));
  if (reply.str(0) != "OK") return unexpected("routes", reply);
  Routes routes{reply.num(1), {}, {}};
  for (const Reply& row : reply.at(2).elements) routes.workers.push_back(worker_from(row.fields()));
  for (const Reply& row : reply.at(3).elements)
    routes.adapters.push_back(adapter_from(row.fields()));
  return routes;
}

base::Result<int64_t> WorkerRepository::routes_revision() {
  DEX_ASSIGN_OR_RETURN(const Reply reply,
                       store_.command({"HGET", store_.key("cfg"), "routes_rev"}));
  return reply.as_int();
}

}  // namespace dex::store
