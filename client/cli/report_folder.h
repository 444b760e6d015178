#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "dex/v1/evaluation.pb.h"
#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::cli {

// A report with its pictures as files, so that the names in its Markdown lead to them.
struct ReportFile {
  std::string name, content;
};

// report.md and the pictures. Empty: the evaluation has no report.
std::vector<ReportFile> report_files(const v1::Evaluation& evaluation);
// head_selection.json, without the picture, and the picture where there is one.
std::vector<ReportFile> report_files(const v1::HeadSelectionReport& report);

// Writes them into `folder`, which is made where it is missing; files of these names are replaced.
// Names come from the server: INTERNAL for one that would leave the folder, before anything is
// written.
base::Status write_report(const std::filesystem::path& folder,
                          const std::vector<ReportFile>& files);

}  // namespace dex::cli
