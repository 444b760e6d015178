#include "services/data/dataset.h"

#include <cstdio>

#include "services/data/token_layer.h"

namespace dex::data {

namespace {

// "12 no_trainable_tokens (lines 3, 9, 14 …)"
std::string describe(const std::map<std::string, Dropped>& dropped) {
  std::string text;
  for (const auto& [code, rows] : dropped) {
    text += (text.empty() ? "" : "; ") + std::to_string(rows.rows) + " " + code + " (lines ";
    const size_t shown = std::min<size_t>(rows.lines.size(), 5);
    for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(rows.lines[i]);
    text += rows.rows > static_cast<int64_t>(shown) ? " …)" : ")";
  }
  return text;
}

base::Status invalid(const std::string& message) {
  return base::failed_precondition("FILE_INVALID", message);
}

base::Status check_budget(const TokenStatistics& tokens, double budget) {
  const int64_t dropped = tokens.rows_dropped(), rows = tokens.lengths.rows();
  if (rows == 0) return invalid("the file has no good row");
  const double ratio = static_cast<double>(dropped) / static_cast<double>(rows);
  if (tokens.rows_trained == 0 || ratio > budget) {
    char numbers[96];
    std::snprintf(numbers, sizeof numbers, " (%.2f %%, skip_budget_ratio allows %.2f %%)",
                  ratio * 100, budget * 100);
    return invalid(std::to_string(dropped) + " of " + std::to_string(rows) +
                   " rows can't be trained" + numbers + ": " + describe(tokens.dropped));
  }
  return {};
}

void append(std::vector<Finding>& to, std::vector<Finding> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

base::Result<EncodedDataset> load_encoded(const std::filesystem::path& path,
                                          const text::Tokenizer* tokenizer,
                                          const text::ChatTemplate* chat_template,
                                          const LoadOptions& options, std::stop_token stop) {
  constexpr size_t kFindings = 500;  // of each layer
  Validator::Options reading;
  reading.find_duplicates = false;
  reading.max_findings = kFindings;
  DEX_ASSIGN_OR_RETURN(const std::unique_ptr<RowReader> reader,
                       RowReader::open(path, std::move(reading)));
  const text::RowEncoder encoder(tokenizer, chat_template, options.encoder);
  Findings findings(kFindings);
  TokenLayer layer(encoder, tokenizer, findings);

  EncodedDataset dataset;
  while (true) {
    if (stop.stop_requested())
      return base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "loading stopped");
    DEX_ASSIGN_OR_RETURN(std::optional<Row> row, reader->next());
    if (!row) break;
    std::vector<text::EncodedRow> sequences = layer.check(*row);
    if (layer.statistics().tokens > options.max_tokens) {
      return base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
                          path.string() + " has more than " + std::to_string(options.max_tokens) +
                              " tokens, which is what one job may hold in memory; split the file");
    }
    if (!options.keep_examples) continue;
    const uint64_t hash = text::content_hash(row->content);
    for (text::EncodedRow& sequence : sequences) {
      dataset.examples.push_back({std::move(sequence), row->line, row->tag, row->language, hash});
    }
  }
  const Report& report = reader->report();
  layer.finish(report.tokenizer_sha256);
  dataset.format = report.format.value_or(text::RowFormat::kText);
  dataset.tokens = layer.statistics();
  dataset.rows = report.statistics;
  dataset.findings = report.findings;
  append(dataset.findings, findings.list());
  dataset.finding_counts = report.finding_counts;
  for (const auto& [code, count] : findings.counts()) dataset.finding_counts[code] += count;

  if (findings.counts().contains("tokenizer_mismatch"))
    return invalid(findings.first(1).front().message);
  DEX_RETURN_IF_ERROR(check_budget(dataset.tokens, options.skip_budget_ratio));
  return dataset;
}

}  // namespace dex::data
