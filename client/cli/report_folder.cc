#include "client/cli/report_folder.h"

#include "client/cli/output.h"
#include "services/base/files.h"

namespace dex::cli {

namespace {

bool stays_in_folder(const std::string& name) {
  return !name.empty() && name.front() != '.' && name.find_first_of("/\\") == std::string::npos &&
         name.find('\0') == std::string::npos;
}

}  // namespace

std::vector<ReportFile> report_files(const v1::Evaluation& evaluation) {
  if (evaluation.report_markdown().empty()) return {};
  std::vector<ReportFile> files = {{"report.md", evaluation.report_markdown()}};
  for (const auto& picture : evaluation.pictures())
    files.push_back({picture.name(), picture.svg()});
  return files;
}

std::vector<ReportFile> report_files(const v1::HeadSelectionReport& report) {
  v1::HeadSelectionReport numbers = report;
  numbers.clear_picture();
  std::vector<ReportFile> files = {{"head_selection.json", to_json(numbers) + "\n"}};
  if (report.has_picture()) files.push_back({report.picture().name(), report.picture().svg()});
  return files;
}

base::Status write_report(const std::filesystem::path& folder,
                          const std::vector<ReportFile>& files) {
  for (const ReportFile& file : files) {
    if (!stays_in_folder(file.name))
      return base::internal("the server names a file \"" + file.name + "\", which is no file name");
  }
  DEX_RETURN_IF_ERROR(base::make_directories(folder, 0755));
  for (const ReportFile& file : files)
    DEX_RETURN_IF_ERROR(base::write_file_atomically(folder / file.name, file.content));
  return {};
}

}  // namespace dex::cli
