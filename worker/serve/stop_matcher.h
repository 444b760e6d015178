#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dex::serve {

// Finds stop strings in a text that comes in pieces, and keeps them out of it. Text that could
// still become a stop string is held back. Not thread-safe; one a completion.
class StopMatcher {
 public:
  explicit StopMatcher(std::vector<std::string> stops);  // none of them empty

  // The text that is certain to come before any stop string. After a match: nothing more.
  std::string push(std::string_view piece);
  // What is left when the completion ends for another reason.
  std::string finish();

  // The stop string that was complete first, the longest of those that end there; empty: none yet.
  [[nodiscard]] const std::string& found() const { return found_; }

 private:
  std::vector<std::string> stops_;
  std::string pending_;  // shorter than the longest stop string
  std::string found_;
};

}  // namespace dex::serve
