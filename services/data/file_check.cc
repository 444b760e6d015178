#include "services/data/file_check.h"

#include <algorithm>
#include <cstdio>

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

base::Status check_budget(const FileReport& report, double budget) {
  const Statistics& read = report.structure.statistics;
  const int64_t left_out = report.tokens->rows_dropped() + read.rows_skipped;
  const int64_t rows = read.rows_good + read.rows_skipped;
  if (rows == 0) return invalid("empty_file: the file has no row");
  const double ratio = static_cast<double>(left_out) / static_cast<double>(rows);
  if (report.tokens->rows_trained > 0 && ratio <= budget) return {};
  char numbers[96];
  std::snprintf(numbers, sizeof numbers, " (%.2f %%, skip_budget_ratio allows %.2f %%)",
                ratio * 100, budget * 100);
  return invalid(std::to_string(left_out) + " of " + std::to_string(rows) +
                 " rows can't be trained" + numbers + ": " + describe(report.dropped) +
                 ". The first: " + first_error(report.findings));
}

}  // namespace

FileCheck::FileCheck(Options options)
    : options_(std::move(options)),
      findings_(options_.reading.max_findings),
      preset_(options_.preset),
      validator_(reading()) {
  if (options_.encoder != nullptr) layer_.emplace(*options_.encoder, options_.tokenizer, findings_);
}

Validator::Options FileCheck::reading() {
  Validator::Options reading = options_.reading;
  reading.on_row = [this](const Row& row) { take(row); };
  return reading;
}

void FileCheck::take(const Row& row) {
  ++rows_;
  if (!layer_) return;
  preset_.add(row);
  std::vector<text::EncodedRow> sequences = layer_->check(row);
  tokens_ = layer_->statistics().tokens;
  if (options_.on_row) options_.on_row(row, std::move(sequences));
}

FileReport FileCheck::finish() {
  FileReport report;
  report.structure = validator_.finish();
  report.findings = report.structure.findings;
  report.finding_counts = report.structure.finding_counts;
  if (layer_) {
    layer_->finish(report.structure.tokenizer_sha256);
    report.tokens = layer_->statistics();
    preset_.finish(report.structure.statistics, *report.tokens, options_.max_seq_length, findings_);
    report.dropped = report.tokens->dropped;
    add_refused(report.structure.findings, report.dropped);
    const std::vector<Finding> more = findings_.list();
    report.findings.insert(report.findings.end(), more.begin(), more.end());
    std::ranges::stable_sort(report.findings, {}, &Finding::line);
    for (const auto& [code, count] : findings_.counts()) report.finding_counts[code] += count;
  }
  report.verdict = judge(report);
  return report;
}

base::Status FileCheck::judge(const FileReport& report) const {
  if (!report.structure.ready) return invalid(fault_of(report.structure));
  if (!report.tokens) return {};
  if (findings_.counts().contains("tokenizer_mismatch"))
    return invalid(first_error(findings_.first(1)));
  return check_budget(report, options_.skip_budget_ratio);
}

}  // namespace dex::data
