#include "services/data/statistics.h"

#include <algorithm>

#include "services/text/utf8.h"

namespace dex::data {

void NamedCounts::add(const std::string& name, int64_t count) {
  constexpr size_t kNames = 10'000, kNameBytes = 128;
  const std::string key = name.substr(0, text::utf8_prefix(name, kNameBytes));
  const auto found = counts_.find(key);
  if (found != counts_.end()) {
    found->second += count;
  } else {
    counts_[counts_.size() < kNames ? key : "(other)"] += count;
  }
}

std::map<std::string, int64_t> NamedCounts::largest(size_t limit) const {
  std::vector<std::pair<std::string, int64_t>> sorted(counts_.begin(), counts_.end());
  std::ranges::stable_sort(sorted, std::greater(), &std::pair<std::string, int64_t>::second);
  if (sorted.size() > limit) sorted.resize(limit);
  return {sorted.begin(), sorted.end()};
}

void Statistics::add(const Row& row) {
  ++rows_good;
  text_bytes += row.text_bytes;
  longest_row_bytes = std::max(longest_row_bytes, row.text_bytes);
  const text::Row& content = row.content;
  tokens_guess += content.format == text::RowFormat::kTokens
                      ? static_cast<int64_t>(content.input_ids.size())
                      : (row.text_bytes + 3) / 4;
  for (const std::string* part : {&content.prompt, &content.completion, &content.text}) {
    characters += static_cast<int64_t>(text::count_characters(*part));
  }
  for (const text::Message& message : content.messages) {
    characters += static_cast<int64_t>(text::count_characters(message.content));
  }
  messages += static_cast<int64_t>(content.messages.size());
  most_messages = std::max(most_messages, static_cast<int64_t>(content.messages.size()));
  if (!row.tag.empty()) rows_by_tag.add(row.tag, 1);
  if (!row.language.empty()) rows_by_language.add(row.language, 1);
}

}  // namespace dex::data
