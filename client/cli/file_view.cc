#include "client/cli/file_view.h"

#include "client/cli/names.h"

namespace dex::cli {

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
    output.note("  … and " + std::to_string(total - file.findings_size()) +
                " more: dexctl files findings " + file.id());
  }
}

}  // namespace dex::cli
