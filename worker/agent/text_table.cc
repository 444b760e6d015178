#include "worker/agent/text_table.h"

#include <utility>

namespace dex::agent {

std::optional<uint64_t> TextTable::add(Answer answer) {
  const std::lock_guard lock(mutex_);
  if (open_.size() >= most_) return std::nullopt;
  const uint64_t request = next_++;
  open_.emplace(request, std::move(answer));
  return request;
}

void TextTable::finish(uint64_t request, base::Result<Report> report) {
  Answer answer;
  {
    const std::lock_guard lock(mutex_);
    const auto it = open_.find(request);
    if (it == open_.end()) return;
    answer = std::move(it->second);
    open_.erase(it);
  }
  answer(std::move(report));
}

void TextTable::fail_all(const base::Status& status) {
  std::unordered_map<uint64_t, Answer> open;
  {
    const std::lock_guard lock(mutex_);
    open.swap(open_);
  }
  for (const auto& [request, answer] : open) answer(status);
}

}  // namespace dex::agent
