#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "services/base/status.h"

namespace dex::server {

// A ustar archive of regular files, written in pieces as they come. The sink answers false when
// nobody listens any more; then the writer fails with CANCELLED. Not thread-safe.
class TarWriter {
 public:
  using Sink = std::function<bool(std::string_view)>;
  explicit TarWriter(Sink sink) : sink_(std::move(sink)) {}

  // Announces a file of exactly `bytes`; then append() them; the next begin() or finish() pads.
  // `name` is at most 99 bytes and plain.
  base::Status begin(const std::string& name, int64_t bytes);
  base::Status append(std::string_view bytes);
  base::Status finish();  // the two empty blocks at the end

 private:
  base::Status send(std::string_view bytes);
  base::Status pad();

  Sink sink_;
  int64_t left_ = 0;  // of the current file
  int64_t sent_ = 0;
};

}  // namespace dex::server
