#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <unordered_map>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/status.h"

namespace dex::agent {

// The calls to a tokenizer that an engine still owes an answer. Answers are given outside the lock.
// Thread-safe.
class TextTable {
 public:
  using Report = dex::internal::v1::EngineReport::Text;
  using Answer = std::function<void(base::Result<Report>)>;

  explicit TextTable(size_t most) : most_(most) {}

  // The call's number; nullopt when `most` are open, and `answer` is let go then.
  std::optional<uint64_t> add(Answer answer);
  void finish(uint64_t request, base::Result<Report> report);  // one that is not there: nothing
  void fail_all(const base::Status& status);

 private:
  const size_t most_;
  std::mutex mutex_;
  std::unordered_map<uint64_t, Answer> open_;  // guarded by mutex_
  uint64_t next_ = 1;                          // guarded by mutex_
};

}  // namespace dex::agent
