#pragma once

#include <filesystem>
#include <functional>
#include <string>

#include "services/base/status.h"

namespace dex::server {

// Streams a published folder as a ustar archive: checksums.json first, then the files that it
// names, each held against it while it is read. The sink answers false when nobody listens any more
// (CANCELLED). DATA_LOSS ARTIFACT_CORRUPT when checksums.json is not of hash `sha256` or a file is
// not what it was; `whose` begins that sentence: "The adapter's". Blocks on the disk.
base::Status send_artefact(const std::filesystem::path& folder, const std::string& sha256,
                           const std::string& whose, const std::function<bool(std::string)>& sink);

}  // namespace dex::server
