#include "worker/serve/stop_matcher.h"

#include <algorithm>
#include <utility>

namespace dex::serve {
namespace {

// Length of the longest end of `text` that begins `stop`, the whole of `stop` excluded.
size_t overlap(std::string_view text, std::string_view stop) {
  for (size_t length = std::min(text.size(), stop.size() - 1); length > 0; --length) {
    if (text.ends_with(stop.substr(0, length))) return length;
  }
  return 0;
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> stops) : stops_(std::move(stops)) {}

std::string StopMatcher::push(std::string_view piece) {
  if (!found_.empty()) return {};
  pending_ += piece;
  size_t at = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t here = pending_.find(stop);
    if (here < at || (here == at && here != std::string::npos && stop.size() > found_.size())) {
      at = here;
      found_ = stop;
    }
  }
  if (!found_.empty()) {
    pending_.resize(at);
    return std::exchange(pending_, {});
  }
  size_t held = 0;
  for (const std::string& stop : stops_) held = std::max(held, overlap(pending_, stop));
  std::string certain = pending_.substr(0, pending_.size() - held);
  pending_.erase(0, certain.size());
  return certain;
}

std::string StopMatcher::finish() {
  return std::exchange(pending_, {});
}

}  // namespace dex::serve
