#pragma once

#include <grpcpp/server.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "dex/internal/v1/routes.grpc.pb.h"
#include "dex/v1/inference.grpc.pb.h"

namespace dex::perf {

// What stands behind a gateway that is measured, and costs next to nothing: a worker that has a
// whole answer at once and makes the tokens of all its streams at the same even pace, and a
// scheduler that knows one route, to that worker. One gRPC server on a free port of loopback.
// Thread-safe.
class Backend {
 public:
  static constexpr const char* kModel = "perf";
  // A stream has start, max_tokens deltas, one each `pace` from its beginning on, and finish.
  explicit Backend(std::chrono::microseconds pace);
  ~Backend();  // ends what is open
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  [[nodiscard]] const std::string& address() const { return address_; }

 private:
  class Stream;
  class Routes;
  class Inference final : public v1::InferenceService::CallbackService {
   public:
    explicit Inference(Backend& backend) : backend_(backend) {}
    grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                       const v1::GenerateRequest* in,
                                       v1::GenerateResponse* out) override;
    grpc::ServerWriteReactor<v1::GenerateStreamResponse>* GenerateStream(
        grpc::CallbackServerContext* context, const v1::GenerateRequest* in) override;

   private:
    Backend& backend_;
  };
  class Scheduler final : public internal::v1::RouteService::CallbackService {
   public:
    explicit Scheduler(Backend& backend) : backend_(backend) {}
    grpc::ServerWriteReactor<internal::v1::RouteSnapshot>* WatchRoutes(
        grpc::CallbackServerContext* context, const internal::v1::WatchRoutesRequest* in) override;

   private:
    Backend& backend_;
  };

  const std::chrono::microseconds pace_;
  Inference inference_{*this};
  Scheduler scheduler_{*this};
  std::string address_;
  std::mutex mutex_;
  std::set<Stream*> streams_;  // open ones, guarded by mutex_
  std::unique_ptr<grpc::Server> server_;
  std::jthread ticking_;
};

}  // namespace dex::perf
