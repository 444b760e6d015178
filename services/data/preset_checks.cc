#include "services/data/preset_checks.h"

#include <algorithm>

#include "services/data/code_text.h"

namespace dex::data {

namespace {

constexpr double kMostOfOneLanguage = 0.9;
constexpr int64_t kCodeShare = 3;  // one row in so many

// The row's texts that training learns to write.
std::string trained_text(const text::Row& row) {
  switch (row.format) {
    case text::RowFormat::kText:
      return row.text;
    case text::RowFormat::kPromptCompletion:
      return row.completion;
    case text::RowFormat::kTokens:
      return "";
    case text::RowFormat::kChat:
      break;
  }
  std::string all;
  for (const text::Message& message : row.messages) {
    if (message.role == "assistant") all += message.content + "\n";
  }
  return all;
}

void warn(std::string_view code, std::string message, std::string hint, Findings& findings) {
  findings.add(code, Severity::kWarning, [&] {
    return Finding{.layer = Layer::kTokens, .message = std::move(message), .hint = std::move(hint)};
  });
}

void check_languages(const Statistics& rows, Findings& findings) {
  constexpr std::string_view kCode = "preset_language_share";
  const auto& counts = rows.rows_by_language.all();
  if (counts.empty()) {
    warn(kCode,
         "no row carries \"language\", so nothing says whether the rows are of several languages, "
         "as preset multilingual expects",
         "add \"language\": \"de\" to each line, with its own language", findings);
    return;
  }
  int64_t total = 0;
  for (const auto& [language, count] : counts) total += count;
  const auto most =
      std::ranges::max_element(counts, {}, [](const auto& each) { return each.second; });
  const double share = static_cast<double>(most->second) / static_cast<double>(total);
  if (share <= kMostOfOneLanguage) return;
  warn(kCode,
       std::to_string(most->second) + " of the " + std::to_string(total) +
           " rows that carry \"language\" carry \"" + most->first +
           "\"; preset multilingual expects at most 90 % of one language",
       "add rows of other languages, or take another preset", findings);
}

void check_lengths(const LengthDistribution& lengths, int32_t max_seq_length, Findings& findings) {
  const int64_t median = lengths.quantile(0.5);
  if (2 * median >= max_seq_length) return;
  warn("preset_short_rows",
       "half of the rows have at most " + std::to_string(median) +
           " tokens; preset long_text expects at least half of max_seq_length " +
           std::to_string(max_seq_length),
       "use longer rows, a smaller max_seq_length, or another preset", findings);
}

}  // namespace

PresetChecks::PresetChecks(std::string_view preset) : preset_(preset.substr(0, preset.find('@'))) {}

void PresetChecks::add(const Row& row) {
  if (preset_ != "code") return;
  const std::string text = trained_text(row.content);
  if (text.empty()) return;
  ++texts_;
  codes_ += looks_like_code(text);
}

void PresetChecks::finish(const Statistics& rows, const TokenStatistics& tokens,
                          int32_t max_seq_length, Findings& findings) const {
  if (rows.rows_good == 0) return;
  if (preset_ == "multilingual") check_languages(rows, findings);
  if (preset_ == "long_text") check_lengths(tokens.lengths, max_seq_length, findings);
  if (preset_ == "code" && codes_ * kCodeShare < texts_) {
    warn("preset_not_code",
         std::to_string(codes_) + " of " + std::to_string(texts_) +
             " rows look like source code; preset code expects at least a third",
         "take another preset if the rows are not code", findings);
  }
}

}  // namespace dex::data
