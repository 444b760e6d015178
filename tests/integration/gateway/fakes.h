#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "dex/v1/admin.grpc.pb.h"
#include "dex/v1/inference.grpc.pb.h"
#include "tests/unit/services/rpc/file_server.h"

namespace dex::gateway {

// A server of one process, ended by destruction: connections break as if it had been killed.
struct Host {
  rpc::Room room{rpc::Room::Options{}};
  monitor::Registry metrics{"fake", "0", "0"};
  std::unique_ptr<rpc::Server> server;

  std::string listen(const std::string& address, std::vector<rpc::Server::Service> services) {
    rpc::Server::Options options;
    options.address = address;
    options.services = std::move(services);
    auto started = rpc::Server::start(options, room, metrics);
    EXPECT_TRUE(started.ok()) << started.status().to_string();
    if (started.ok()) server = std::move(started).value();
    return server ? server->address() : "";
  }
  void kill() {
    if (server) server->stop(std::chrono::milliseconds(0));
  }
};

// An AdminService whose diagnosis a test writes; before, one check that is well.
class FakeAdmin final : public v1::AdminService::CallbackService {
 public:
  explicit FakeAdmin(rpc::Room& room) : room_(room) {
    health = [](rpc::Call&) {
      v1::Health found;
      found.set_version("of the scheduler");
      auto& check = *found.add_checks();
      check.set_topic("store");
      check.set_name("Redis");
      check.set_severity(v1::Health::SEVERITY_OK);
      return base::Result<v1::Health>(std::move(found));
    };
  }
  std::function<base::Result<v1::Health>(rpc::Call&)> health;

  grpc::ServerUnaryReactor* GetHealth(grpc::CallbackServerContext* context,
                                      const v1::GetHealthRequest* in, v1::Health* out) override {
    return rpc::run(room_, context, in, out, [this](rpc::Call& call) { return health(call); });
  }

 private:
  rpc::Room& room_;
};

// The scheduler as a gateway sees it: services whose answers a test writes, and routes.
class FakeScheduler final : public internal::v1::RouteService::CallbackService {
 public:
  explicit FakeScheduler(const std::string& address = "127.0.0.1:0") {
    address_ = host_.listen(address, {{"dex.v1.FileService", &files},
                                      {"dex.v1.AdminService", &admin},
                                      {"dex.internal.v1.RouteService", this}});
  }
  ~FakeScheduler() override {
    host_.kill();
    const std::lock_guard lock(mutex_);
    watchers_.clear();
  }

  [[nodiscard]] const std::string& address() const { return address_; }

  void set_routes(internal::v1::RouteSnapshot routes) {
    const std::lock_guard lock(mutex_);
    routes_ = std::move(routes);
    for (const auto& watcher : watchers_) watcher->push(routes_);
  }

  grpc::ServerWriteReactor<internal::v1::RouteSnapshot>* WatchRoutes(
      grpc::CallbackServerContext* context, const internal::v1::WatchRoutesRequest* in) override {
    using Stream = rpc::ServerStream<internal::v1::RouteSnapshot>;
    return rpc::stream<internal::v1::RouteSnapshot>(
        host_.room, context, in,
        [this](std::shared_ptr<Stream> stream, const internal::v1::WatchRoutesRequest&) {
          const std::lock_guard lock(mutex_);
          stream->push(routes_);
          watchers_.push_back(std::move(stream));
        });
  }

  // What gateways have reported, each answered as answer_reports() has said last (OK).
  std::vector<internal::v1::ReportUseRequest> reports() {
    const std::lock_guard lock(mutex_);
    return reports_;
  }
  void answer_reports(base::Status status) {
    const std::lock_guard lock(mutex_);
    report_answer_ = std::move(status);
  }
  grpc::ServerUnaryReactor* ReportUse(grpc::CallbackServerContext* context,
                                      const internal::v1::ReportUseRequest* in,
                                      internal::v1::ReportUseResponse* out) override {
    return rpc::run(host_.room, context, in, out,
                    [=, this](rpc::Call&) -> base::Result<internal::v1::ReportUseResponse> {
                      const std::lock_guard lock(mutex_);
                      reports_.push_back(*in);
                      DEX_RETURN_IF_ERROR(report_answer_);
                      return internal::v1::ReportUseResponse();
                    });
  }

 private:
  std::mutex mutex_;
  std::vector<internal::v1::ReportUseRequest> reports_;
  base::Status report_answer_;
  internal::v1::RouteSnapshot routes_;
  std::vector<std::shared_ptr<rpc::ServerStream<internal::v1::RouteSnapshot>>> watchers_;
  std::string address_;

 public:
  // After the members above: calls end before they go.
  Host host_;
  rpc::Files files{host_.room};
  FakeAdmin admin{host_.room};
  void kill() { host_.kill(); }
};

// A worker's InferenceService. Answers name the worker in `text`; a test may write its own.
class FakeWorker final : public v1::InferenceService::CallbackService {
 public:
  using Stream = std::shared_ptr<rpc::ServerStream<v1::GenerateStreamResponse>>;

  explicit FakeWorker(std::string name) : name_(std::move(name)) {
    generate = [this](rpc::Call& call, const v1::GenerateRequest&) {
      v1::GenerateResponse reply;
      reply.set_text(name_);
      reply.set_model(call.header("dex-routed-base").value_or("-"));
      reply.mutable_adapter()->set_id(call.header("dex-routed-adapter").value_or("-"));
      reply.mutable_adapter()->set_content_sha256(
          call.header("dex-routed-adapter-sha256").value_or("-"));
      return base::Result<v1::GenerateResponse>(std::move(reply));
    };
    address_ = host_.listen("127.0.0.1:0", {{"dex.v1.InferenceService", this}});
  }
  ~FakeWorker() override { host_.kill(); }

  std::function<base::Result<v1::GenerateResponse>(rpc::Call&, const v1::GenerateRequest&)>
      generate;
  std::function<void(Stream)> stream;

  [[nodiscard]] const std::string& address() const { return address_; }
  void kill() { host_.kill(); }
  void drain() { host_.server->set_serving("", false); }  // takes nothing new, by its own word

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const v1::GenerateRequest* in,
                                     v1::GenerateResponse* out) override {
    return rpc::run(host_.room, context, in, out,
                    [=, this](rpc::Call& call) { return generate(call, *in); });
  }
  grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
      grpc::CallbackServerContext* context, const v1::GenerateRequest* in) override {
    return rpc::stream<v1::GenerateStreamResponse>(
        host_.room, context, in,
        [this](Stream out, const v1::GenerateRequest&) { stream(std::move(out)); });
  }

 private:
  const std::string name_;
  std::string address_;
  Host host_;
};

// Messages of a token stream.
inline v1::GenerateStreamResponse started(const std::string& id) {
  v1::GenerateStreamResponse made;
  made.mutable_start()->set_id(id);
  return made;
}
inline v1::GenerateStreamResponse delta(const std::string& text) {
  v1::GenerateStreamResponse made;
  made.mutable_delta()->set_text(text);
  return made;
}
inline v1::GenerateStreamResponse finished() {
  v1::GenerateStreamResponse made;
  made.mutable_finish()->set_finish_reason(v1::FINISH_REASON_STOP);
  return made;
}

// Routes of the base `smol` at these workers.
inline internal::v1::RouteSnapshot routes_to(const std::vector<const FakeWorker*>& workers) {
  internal::v1::RouteSnapshot made;
  made.set_revision(1);
  made.add_bases("smol");
  int number = 0;
  for (const auto* worker : workers) {
    auto* route = made.add_routes();
    route->set_worker("w" + std::to_string(++number));
    route->set_inference_address(worker->address());
    route->set_base("smol");
  }
  return made;
}
inline void add_adapter(internal::v1::RouteSnapshot& routes, const std::string& id) {
  auto* adapter = routes.add_adapters();
  adapter->set_id(id);
  adapter->set_base("smol");
  adapter->set_tenant("default");
  adapter->set_content_sha256("hash of " + id);
}

}  // namespace dex::gateway
