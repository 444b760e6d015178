#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>

#include "services/base/clock.h"

namespace dex::gateway {

// When each API key was last used here, told to the scheduler every now and then, so that a list of
// keys shows it. Never in the way of a call: noting takes a short lock, and a report that fails
// goes with the next one. One thread; the destructor joins. Thread-safe.
class KeyUses {
 public:
  // The clock outlives this object. `period`: between two reports.
  KeyUses(std::shared_ptr<grpc::Channel> scheduler, const base::Clock& clock,
          std::chrono::milliseconds period);
  ~KeyUses();

  void note(const std::string& key);  // "": nothing

 private:
  using Uses = std::unordered_map<std::string, int64_t>;  // id → Unix milliseconds
  bool report(const Uses& uses);

  const std::shared_ptr<grpc::Channel> scheduler_;
  const base::Clock& clock_;
  const std::chrono::milliseconds period_;
  std::mutex mutex_;
  Uses uses_;  // guarded by mutex_: not reported yet
  std::jthread thread_;
};

}  // namespace dex::gateway
