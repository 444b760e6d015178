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
  // The stop that is complete first wins, the longer one of two that end together: that does not
  // depend on how the text was cut into pieces.
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t at = pending_.find(stop);
    if (at == std::string::npos) continue;
    const size_t here = at + stop.size();
    if (here < end || (here == end && stop.size() > found_.size())) {
      end = here;
      found_ = stop;
    }
  }
  if (!found_.empty()) {
    pending_.resize(end - found_.size());
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
