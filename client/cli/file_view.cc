#include "client/cli/file_view.h"

#include <cstdlib>

#include "client/cli/names.h"
#include "services/text/utf8.h"

namespace dex::cli {

namespace {

// "at most 512 tokens, CHUNK, only what is to be answered"
std::string encoding_text(const v1::RowEncoding& encoding) {
  const std::string inputs =
      encoding.train_on_inputs() ? "prompts trained too" : "prompts not trained";
  const std::string length =
      encoding.max_seq_length() > 0
          ? "at most " + std::to_string(encoding.max_seq_length()) + " tokens"
          : "of any length";
  return "preset " + (encoding.preset().empty() ? "none" : encoding.preset()) + ", rows " + length +
         ", truncation " + short_name(encoding.truncation()) + ", " + inputs;
}

void add_tokens(const v1::TokenStatistics& tokens, Table& table) {
  const auto add = [&](const std::string& what, int64_t value) {
    table.push_back({what, std::to_string(value)});
  };
  table.push_back({"encoding", encoding_text(tokens.encoding())});
  add("rows trained", tokens.rows_trained());
  add("sequences", tokens.sequences());
  add("tokens", tokens.tokens());
  add("trained tokens", tokens.trainable_tokens());
  table.push_back(
      {"tokens a row", "min " + std::to_string(tokens.min()) + ", mean " + fixed(tokens.mean(), 1) +
                           ", p50 " + std::to_string(tokens.p50()) + ", p90 " +
                           std::to_string(tokens.p90()) + ", p99 " + std::to_string(tokens.p99()) +
                           ", max " + std::to_string(tokens.max())});
  if (tokens.truncated_rows() > 0) {
    table.push_back({"cut", std::to_string(tokens.truncated_rows()) + " rows lose " +
                                std::to_string(tokens.truncated_tokens()) + " tokens, " +
                                std::to_string(tokens.truncated_trainable_tokens()) +
                                " of them trained ones"});
  }
  for (const auto& [code, dropped] : tokens.dropped()) {
    std::string lines;
    for (const int64_t line : dropped.lines()) {
      if (lines.size() > 40) break;
      lines += (lines.empty() ? "" : ", ") + std::to_string(line);
    }
    const bool all =
        static_cast<int64_t>(dropped.lines_size()) == dropped.rows() && lines.size() <= 40;
    table.push_back({"left out", std::to_string(dropped.rows()) + " " + code + " (lines " + lines +
                                     (all ? ")" : " …)")});
  }
}

// The bytes of a token that is no whole character: "bytes:\xe2\x82".
std::string bytes_of(const std::string& text) {
  constexpr std::string_view kBytes = "bytes:\\x";
  if (!text.starts_with(kBytes)) return text;
  std::string bytes;
  for (size_t at = kBytes.size(); at + 2 <= text.size(); at += 4)
    bytes += static_cast<char>(std::strtol(text.substr(at, 2).c_str(), nullptr, 16));
  return bytes;
}

// Characters may lie across tokens, and then across what is trained and what is not: they stand
// where they end.
std::string marked_text(const v1::PreviewedRow& row, const Terminal& terminal) {
  text::Utf8Stream stream;
  std::string whole, part;
  bool trained = false;
  const auto flush = [&] {
    if (part.empty()) return;
    whole += !trained ? part : terminal.color ? green(terminal, part) : "⟦" + part + "⟧";
    part.clear();
  };
  for (const auto& token : row.tokens()) {
    if (const bool now = token.weight() > 0; now != trained) {
      flush();
      trained = now;
    }
    part += stream.push(bytes_of(token.text()));
  }
  part += stream.finish();
  flush();
  return whole;
}

}  // namespace

Table file_table(const std::vector<v1::File>& files) {
  Table table = {{"ID", "STATE", "FORMAT", "ROWS", "SIZE", "≈ TOKENS", "NAME"}};
  for (const auto& file : files) {
    table.push_back({file.id(), short_name(file.state()), short_name(file.format()),
                     std::to_string(file.statistics().rows_good()),
                     human_bytes(static_cast<double>(file.bytes())),
                     human_count(static_cast<double>(file.statistics().tokens_guess())),
                     file.filename()});
  }
  return table;
}

Table findings_table(const std::vector<v1::Finding>& findings) {
  Table table = {{"LINE", "SEVERITY", "CODE", "WHERE", "WHAT", "REMEDY"}};
  for (const auto& finding : findings) {
    table.push_back({finding.line() > 0 ? std::to_string(finding.line()) : "file",
                     short_name(finding.severity()), finding.code(), finding.json_path(),
                     finding.message(), finding.hint()});
  }
  return table;
}

void show_findings(Output& output, const v1::File& file) {
  const Terminal& terminal = output.terminal();
  for (const auto& finding : file.findings()) {
    const std::string place =
        finding.line() > 0 ? "line " + std::to_string(finding.line()) : "file";
    const bool error = finding.severity() == v1::Finding::SEVERITY_ERROR;
    output.note("  " + (error ? red(terminal, place) : place) + "  " + finding.code() + ": " +
                finding.message());
    if (!finding.hint().empty()) output.note("      " + dim(terminal, finding.hint()));
  }
  int64_t total = 0;
  for (const auto& [code, count] : file.finding_counts()) total += count;
  if (total > file.findings_size()) {
    output.note("  … and " + std::to_string(total - file.findings_size()) + " more: " +
                (file.id().empty() ? "--max-findings" : "dexctl files findings " + file.id()));
  }
}

Table statistics_table(const v1::File& file) {
  const v1::FileStatistics& rows = file.statistics();
  Table table = {
      {"FILE", file.filename()},
      {"verdict", short_name(file.state())},
      {"format", short_name(file.format())},
      {"size", human_bytes(static_cast<double>(file.bytes()))},
      {"rows", std::to_string(rows.rows_good()) + " good, " + std::to_string(rows.rows_skipped()) +
                   " bad, " + std::to_string(rows.duplicate_rows()) + " said before"},
      {"characters", std::to_string(rows.characters())}};
  if (rows.messages() > 0) {
    table.push_back({"messages", std::to_string(rows.messages()) + ", at most " +
                                     std::to_string(rows.most_messages()) + " in a chat"});
  }
  if (rows.has_tokens()) {
    add_tokens(rows.tokens(), table);
  } else {
    table.push_back({"tokens", "about " + human_count(static_cast<double>(rows.tokens_guess())) +
                                   ", a guess: a tokenizer would count them"});
  }
  return table;
}

std::string preview_text(const v1::PreviewFileResponse& preview, const Terminal& terminal) {
  std::string text = dim(terminal, encoding_text(preview.encoding())) + "\n";
  for (const auto& row : preview.rows()) {
    std::string head = "line " + std::to_string(row.line());
    if (row.sequences() > 1) {
      head +=
          ", part " + std::to_string(row.sequence() + 1) + " of " + std::to_string(row.sequences());
    }
    head += ": " + std::to_string(row.trainable_tokens()) + " tokens trained, " +
            std::to_string(row.prompt_tokens()) + " only read";
    if (row.truncated_tokens() > 0) head += ", " + std::to_string(row.truncated_tokens()) + " cut";
    text += "\n" + bold(terminal, head) + "\n";
    if (!row.dropped_reason().empty()) {
      text +=
          red(terminal, "left out: " + row.dropped_reason()) + ": " + row.dropped_message() + "\n";
    }
    if (row.tokens_size() > 0) text += marked_text(row, terminal) + "\n";
  }
  return text;
}

}  // namespace dex::cli
