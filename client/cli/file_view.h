#pragma once

#include <string>
#include <vector>

#include "client/cli/output.h"
#include "dex/v1/files.pb.h"

namespace dex::cli {

Table file_table(const std::vector<v1::File>& files);
Table findings_table(const std::vector<v1::Finding>& findings);
// The file's findings on stderr, a line each with its hint; nothing when there are none.
void show_findings(Output& output, const v1::File& file);

// The figures of a checked file, a line each: with a tokenizer's counts where they are known.
Table statistics_table(const v1::File& file);
// Rows as training sees them, with what is trained in green; without colours between ⟦ and ⟧.
std::string preview_text(const v1::PreviewFileResponse& preview, const Terminal& terminal);

}  // namespace dex::cli
