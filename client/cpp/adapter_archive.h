#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string_view>

#include "services/base/status.h"

namespace dex::client {

// Unpacks a tar that arrives in pieces (`next` gives them, nullopt at the end; a piece stays valid
// until the next call) into `folder`, which must not exist or be empty. Only regular files with
// plain names are taken. Then every file is held against checksums.json: a missing, extra or
// different one is ARTIFACT_CORRUPT. After a failure the folder is gone.
base::Status unpack_adapter(const std::function<std::optional<std::string_view>()>& next,
                            const std::filesystem::path& folder);

}  // namespace dex::client
