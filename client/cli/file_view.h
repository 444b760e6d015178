#pragma once

#include <vector>

#include "client/cli/output.h"
#include "dex/v1/files.pb.h"

namespace dex::cli {

Table file_table(const std::vector<v1::File>& files);
Table findings_table(const std::vector<v1::Finding>& findings);
// The file's findings on stderr, a line each with its hint; nothing when there are none.
void show_findings(Output& output, const v1::File& file);

}  // namespace dex::cli
