#include "services/gateway/proxy/health_answer.h"

#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/byte_buffer.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stop_token>
#include <vector>

#include "dex/v1/admin.grpc.pb.h"
#include "services/auth/principal.h"
#include "services/gateway/proxy/metadata.h"
#include "services/rpc/channel.h"
#include "services/rpc/status.h"
#include "services/rpc/times.h"
#include "services/rpc/unary.h"

namespace dex::gateway {

namespace {

using std::chrono::milliseconds;

constexpr milliseconds kDialTime{2000};
constexpr size_t kMostDials = 256;  // connections that one answer opens

constexpr auto kFine = v1::Health::SEVERITY_OK;
constexpr auto kDoubtful = v1::Health::SEVERITY_WARN;
constexpr auto kBroken = v1::Health::SEVERITY_FAIL;

// grpc.health.v1.HealthCheckResponse with its field 1, status, = SERVING. Its .proto is not linked.
bool says_serving(const grpc::ByteBuffer& reply) {
  std::vector<grpc::Slice> slices;
  if (!reply.Dump(&slices).ok()) return false;
  std::string bytes;
  for (const auto& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes == "\x08\x01";
}

// Asks workers at the same time whether they serve, each over a connection of its own. Every call
// has a deadline; the destructor waits for the last one.
class Dials {
 public:
  struct Dial {
    RouteTable::Worker worker;
    std::shared_ptr<grpc::Channel> channel;
    grpc::ClientContext context;
    grpc::ByteBuffer reply;
    grpc::Status status;
  };

  Dials(const std::vector<RouteTable::Worker>& workers, milliseconds time)
      : open_(std::min(workers.size(), kMostDials)) {
    static const std::string kCheck = "/grpc.health.v1.Health/Check";
    const size_t count = open_;
    for (size_t i = 0; i < count; ++i) {
      Dial& dial = dials_.emplace_back();
      dial.worker = workers[i];
      dial.channel = rpc::channel(dial.worker.address);
      rpc::set_timeout(dial.context, time);
      grpc::GenericStub(dial.channel)
          .UnaryCall(&dial.context, kCheck, {}, &request_, &dial.reply,
                     [this, &dial](grpc::Status status) { ended(dial, std::move(status)); });
    }
  }
  ~Dials() { wait(); }
  Dials(const Dials&) = delete;
  Dials& operator=(const Dials&) = delete;

  // All of them, once the last has ended.
  const std::deque<Dial>& wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return open_ == 0; });
    return dials_;
  }

 private:
  void ended(Dial& dial, grpc::Status status) {
    const std::lock_guard lock(mutex_);
    dial.status = std::move(status);
    if (--open_ == 0) done_.notify_all();  // under the lock: who waits destroys this object
  }

  const grpc::ByteBuffer request_{nullptr, 0};  // of the server as a whole
  std::mutex mutex_;
  std::condition_variable done_;
  size_t open_;             // guarded by mutex_
  std::deque<Dial> dials_;  // a list whose elements stay where they are
};

void add(v1::Health& health, const std::string& name, v1::Health::Severity severity,
         const std::string& finding, const std::string& remedy = "") {
  auto& check = *health.add_checks();
  check.set_topic("gateway");
  check.set_name(name);
  check.set_severity(severity);
  check.set_finding(finding);
  check.set_remedy(remedy);
}

// True when this one is well, and there is nothing to say of it.
bool check_worker(const Dials::Dial& dial, v1::Health& health) {
  const std::string& where = dial.worker.address;
  if (dial.status.ok() && says_serving(dial.reply)) return true;
  if (dial.status.ok()) {
    add(health, dial.worker.id, kDoubtful, "answers at " + where + ", but takes nothing new",
        "it starts or drains; if it stays so, look at its log");
    return false;
  }
  const bool silent = dial.status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED;
  add(health, dial.worker.id, kBroken,
      "does not answer at " + where + ": " +
          (silent ? "nothing came back in time" : dial.status.error_message()),
      "look whether dex-worker runs there, whether a gateway can dial what it is given as "
      "--advertise, and at the firewalls between them");
  return false;
}

void check_workers(const std::deque<Dials::Dial>& dials, size_t routed, v1::Health& health) {
  size_t well = 0;
  for (const auto& dial : dials) well += check_worker(dial, health) ? 1 : 0;
  if (well == 0 || well < dials.size()) return;
  add(health, "workers", kFine,
      std::to_string(well) + " of " + std::to_string(routed) + " asked, all answer");
}

// Nobody of ours said why: there was no answer.
bool is_silence(const grpc::Status& status) {
  return !rpc::has_error_info(status) &&
         (status.error_code() == grpc::StatusCode::UNAVAILABLE ||
          status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED);
}

}  // namespace

grpc::ServerUnaryReactor* HealthAnswer::open(grpc::CallbackServerContext* context,
                                             const v1::GetHealthRequest* in, v1::Health* out) {
  return rpc::run(parts_.room, context, in, out, [this, context](rpc::Call& call) {
    auto health = answer(*context, call);
    const auto status = rpc::to_grpc(health.status(), call.request_id());
    parts_.metrics.request(kPath, status.error_code());
    return health;
  });
}

base::Result<v1::Health> HealthAnswer::answer(const grpc::CallbackServerContext& context,
                                              const rpc::Call& call) {
  DEX_RETURN_IF_ERROR(parts_.admission.admit(context, "").status());
  DEX_RETURN_IF_ERROR(auth::require(call.principal(), auth::Scope::kAdmin));
  const auto table = parts_.routes.table();
  const auto workers = table ? table->every_worker() : std::vector<RouteTable::Worker>();
  Dials dials(workers, std::min(kDialTime, call.time_left() / 2));  // while the scheduler looks
  DEX_ASSIGN_OR_RETURN(v1::Health health, ask_scheduler(context, call));
  if (!table) {
    add(health, "routes", kBroken, "none have come yet: every generation is refused",
        "look at this gateway's log, and whether --scheduler is the scheduler's address");
    return health;
  }
  add(health, "routes", kFine,
      "revision " + std::to_string(table->revision()) + ", to " + std::to_string(workers.size()) +
          (workers.size() == 1 ? " worker" : " workers"));
  check_workers(dials.wait(), workers.size(), health);
  return health;
}

base::Result<v1::Health> HealthAnswer::ask_scheduler(const grpc::CallbackServerContext& context,
                                                     const rpc::Call& call) {
  grpc::ClientContext upstream;
  hand_on(context, call, upstream);
  // A scheduler that hangs leaves time to say so.
  rpc::set_timeout(upstream, call.time_left() * 4 / 5);
  const std::stop_callback cancel(call.stop(), [&upstream] { upstream.TryCancel(); });
  v1::Health health;
  const grpc::Status status = v1::AdminService::NewStub(parts_.scheduler)
                                  ->GetHealth(&upstream, v1::GetHealthRequest(), &health);
  if (status.ok()) return health;
  if (!is_silence(status)) return rpc::from_grpc(status);
  health.Clear();
  health.set_version(parts_.version);
  health.set_commit(parts_.commit);
  *health.mutable_server_time() = rpc::timestamp(clock_.now_ms());
  add(health, "scheduler", kBroken, "does not answer: " + status.error_message(),
      "start it, or look at its log; running jobs and inference go on meanwhile");
  return health;
}

}  // namespace dex::gateway
