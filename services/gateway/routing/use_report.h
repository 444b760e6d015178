#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>

#include "dex/internal/v1/routes.pb.h"
#include "services/base/clock.h"

namespace dex::gateway {

// What this gateway has seen used, told to the scheduler every now and then: when each API key last
// was, and the tokens that each tenant's generations have read and made. Never in the way of a
// call: noting takes a short lock. A report that got no answer is sent again as it was, and counts
// once; what was noted since goes with the next one. A gateway that is killed loses what it has not
// reported. One thread; the destructor joins. Thread-safe.
class UseReport {
 public:
  // The clock outlives this object. `period`: between two reports.
  UseReport(std::shared_ptr<grpc::Channel> scheduler, const base::Clock& clock,
            std::chrono::milliseconds period);
  ~UseReport();

  void note_key(const std::string& key);  // "": nothing
  void note_generation(const std::string& tenant, int64_t prompt_tokens, int64_t generated_tokens);

 private:
  struct Generated {
    int64_t prompt_tokens = 0, generated_tokens = 0, generations = 0;
  };
  void work(const std::stop_token& stop);
  std::optional<internal::v1::ReportUseRequest> take();  // nullopt: nothing was used
  bool send(const internal::v1::ReportUseRequest& report);

  const std::shared_ptr<grpc::Channel> scheduler_;
  const base::Clock& clock_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  std::unordered_map<std::string, int64_t> keys_;         // guarded by mutex_: id → Unix ms
  std::unordered_map<std::string, Generated> generated_;  // guarded by mutex_: by tenant
  std::jthread thread_;
};

}  // namespace dex::gateway
