#include "services/data/findings.h"

#include <algorithm>

#include "services/text/utf8.h"

namespace dex::data {

std::string_view name(Severity severity) {
  switch (severity) {
    case Severity::kError:
      return "ERROR";
    case Severity::kWarning:
      return "WARNING";
    case Severity::kInfo:
      return "INFO";
  }
  return "";
}

std::string_view name(Layer layer) {
  return layer == Layer::kStructure ? "STRUCTURE" : "TOKENS";
}

void Findings::count(std::string_view code, Severity severity) {
  errors_ += severity == Severity::kError;
  if (const auto found = counts_.find(code); found != counts_.end()) {
    ++found->second;
  } else {
    counts_.emplace(code, 1);
  }
}

bool Findings::has_room(Severity severity) const {
  return kept_.size() < limit_ || (severity == Severity::kError && !kept_warnings_.empty());
}

void Findings::keep(Finding finding) {
  const bool is_error = finding.severity == Severity::kError;
  if (kept_.size() < limit_) {
    if (!is_error) kept_warnings_.push_back(kept_.size());
    kept_.push_back(std::move(finding));
    return;
  }
  kept_[kept_warnings_.back()] = std::move(finding);
  kept_warnings_.pop_back();
}

std::vector<Finding> Findings::list() const {
  std::vector<Finding> sorted = kept_;
  std::ranges::stable_sort(sorted, {}, &Finding::line);
  return sorted;
}

std::vector<Finding> Findings::first(size_t count) const {
  std::vector<Finding> sorted = list();
  std::ranges::stable_sort(sorted, {}, &Finding::severity);
  if (sorted.size() > count) sorted.resize(count);
  return sorted;
}

std::string excerpt(std::string_view line, size_t at) {
  constexpr size_t kBefore = 40, kCharacters = 120;
  size_t begin = std::min(at, line.size());
  begin -= std::min(begin, kBefore);
  while (begin > 0 && begin < line.size() && (static_cast<uint8_t>(line[begin]) & 0xC0) == 0x80)
    --begin;
  text::Utf8Stream stream;  // 4 bytes a character at most
  std::string out = stream.push(line.substr(begin, 4 * kCharacters));
  if (begin + 4 * kCharacters >= line.size()) out += stream.finish();
  size_t end = 0, characters = 0;
  for (; end < out.size(); ++end) {
    const auto byte = static_cast<uint8_t>(out[end]);
    if ((byte & 0xC0) != 0x80 && characters++ == kCharacters) break;
    if (byte < 0x20 || byte == 0x7F) out[end] = ' ';
  }
  out.resize(end);
  return out;
}

}  // namespace dex::data
