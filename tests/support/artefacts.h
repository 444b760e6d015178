#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace dex::support {

// Looks at every attempt below `data_dir`/jobs: a checkpoint or a final/ that a reader would find
// must be whole, every file as its manifest says (jobs.md, P14). Answers what is torn, in words;
// `.tmp` does not exist for readers.
std::vector<std::string> torn_artefacts(const std::filesystem::path& data_dir);

}  // namespace dex::support
