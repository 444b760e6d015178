#include "services/data/dataset.h"

#include <algorithm>
#include <cstdio>

#include "services/data/preset_checks.h"
#include "services/data/token_layer.h"

namespace dex::data {

namespace {

// "12 no_trainable_tokens (lines 3, 9, 14 …)"
std::string describe(const std::map<std::string, Dropped>& dropped) {
  std::string text;
  for (const auto& [code, rows] : dropped) {
    const size_t shown = std::min<size_t>(rows.lines.size(), 5);
    text += (text.empty() ? "" : "; ") + std::to_string(rows.rows) + " " + code +
            (rows.rows == 1 ? " (line " : " (lines ");
    for (size_t i = 0; i < shown; ++i) text += (i ? ", " : "") + std::to_string(rows.lines[i]);
    text += rows.rows > static_cast<int64_t>(shown) ? " …)" : ")";
  }
  return text;
}

base::Status invalid(const std::string& message) {
  return base::failed_precondition("FILE_INVALID", message);
}

// "line 21: invalid_json: …"
std::string located(const Finding& finding) {
  return (finding.line > 0 ? "line " + std::to_string(finding.line) + ": " : "") + finding.code +
         ": " + finding.message;
}

std::string first_error(const std::vector<Finding>& findings) {
  const auto found = std::ranges::find(findings, Severity::kError, &Finding::severity);
  return found == findings.end() ? "" : located(*found);
}

// Why a file as a whole can't be used, with the line at which it shows.
std::string fault_of(const Report& report) {
  const auto found = std::ranges::find(report.findings, report.message, &Finding::message);
  return found == report.findings.end() ? report.message : located(*found);
}

// Adds the rows that the structure layer refused; a row with two faults is one row.
void add_refused(const std::vector<Finding>& findings, std::map<std::string, Dropped>& dropped) {
  int64_t last = 0;
  for (const Finding& finding : findings) {  // by line
    if (finding.severity != Severity::kError || finding.line == last) continue;
    last = finding.line;
    ++dropped[finding.code].rows;
    dropped[finding.code].lines.push_back(finding.line);
  }
}

base::Status check_budget(const EncodedDataset& dataset, double budget) {
  const int64_t left_out = dataset.tokens.rows_dropped() + dataset.rows.rows_skipped;
  const int64_t rows = dataset.rows.rows_good + dataset.rows.rows_skipped;
  if (rows == 0) return invalid("empty_file: the file has no row");
  const double ratio = static_cast<double>(left_out) / static_cast<double>(rows);
  if (dataset.tokens.rows_trained > 0 && ratio <= budget) return {};
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " (%.2f %%, skip_budget_ratio allows %.2f %%)",
                ratio * 100, budget * 100);
  return invalid(std::to_string(left_out) + " of " + std::to_string(rows) +
                 " rows can't be trained" + numbers + ": " + describe(dataset.dropped) +
                 ". The first: " + first_error(dataset.findings));
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
  reading.skip_budget_ratio = 1;  // judged below, with what the token layer drops
  reading.limits.minimum_rows = 0;
  DEX_ASSIGN_OR_RETURN(const std::unique_ptr<RowReader> reader,
                       RowReader::open(path, std::move(reading)));
  const text::RowEncoder encoder(tokenizer, chat_template, options.encoder);
  Findings findings(kFindings);
  TokenLayer layer(encoder, tokenizer, findings);
  PresetChecks preset(options.preset);

  EncodedDataset dataset;
  while (true) {
    if (stop.stop_requested())
      return base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "loading stopped");
    DEX_ASSIGN_OR_RETURN(std::optional<Row> row, reader->next());
    if (!row) break;
    preset.add(*row);
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
  if (!report.ready) return invalid(fault_of(report));
  layer.finish(report.tokenizer_sha256);
  preset.finish(report.statistics, layer.statistics(), options.encoder.max_seq_length, findings);
  if (findings.counts().contains("tokenizer_mismatch"))
    return invalid(first_error(findings.first(1)));

  dataset.format = report.format.value_or(text::RowFormat::kText);
  dataset.tokens = layer.statistics();
  dataset.rows = report.statistics;
  dataset.dropped = dataset.tokens.dropped;
  add_refused(report.findings, dataset.dropped);
  dataset.findings = report.findings;
  append(dataset.findings, findings.list());
  std::ranges::stable_sort(dataset.findings, {}, &Finding::line);
  dataset.finding_counts = report.finding_counts;
  for (const auto& [code, count] : findings.counts()) dataset.finding_counts[code] += count;
  DEX_RETURN_IF_ERROR(check_budget(dataset, options.skip_budget_ratio));
  return dataset;
}

}  // namespace dex::data
