#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "services/base/clock.h"
#include "worker/agent/metrics.h"
#include "worker/agent/reply_sink.h"

namespace dex::agent {

// The generations that an engine still owes an answer, and their times. Sinks are called and
// destroyed outside the lock. Thread-safe.
class RequestTable {
 public:
  RequestTable(size_t most, const base::Clock& clock, InferenceMetrics& metrics);

  // The new request's number, or nullopt when `most` are open. `adapter`: its id; empty: the base.
  std::optional<uint64_t> add(std::shared_ptr<ReplySink> sink, std::string adapter = {});
  // The request goes to the engine now; false when it is gone already.
  bool mark_sent(uint64_t request);
  [[nodiscard]] bool sent(uint64_t request) const;

  // False when nobody wants the tokens: unknown request, or its client is gone.
  bool event(uint64_t request, dex::v1::GenerateStreamResponse event);
  void finish(uint64_t request, const dex::v1::GenerateStreamResponse::Finish& finish);
  void fail(uint64_t request, const base::Status& status);
  void fail_all(const base::Status& status);
  [[nodiscard]] size_t size() const;
  [[nodiscard]] bool uses(const std::string& adapter) const;  // a request of it is open
  // Adds the adapters of what is open.
  void add_adapters(AdapterUse& use) const;

 private:
  struct Entry {
    std::shared_ptr<ReplySink> sink;
    std::string adapter;
    int64_t arrived_ms = 0;
    int64_t last_token_ms = 0;
    bool sent = false;
  };
  std::optional<Entry> take(uint64_t request);
  void count_end(const Entry& entry, const char* reason);

  const size_t most_;
  const base::Clock& clock_;
  InferenceMetrics& metrics_;
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, Entry> entries_;  // guarded by mutex_
  uint64_t next_ = 1;                            // guarded by mutex_
};

}  // namespace dex::agent
