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

// The adapter in `folder` as a tar, in pieces: adapter_config.json, adapter_model.safetensors, and
// where they are there checksums.json and provenance.json; whatever else lies beside them stays
// there. `sink` answers false when nobody takes any more (CANCELLED). RESOURCE_NOT_FOUND when one
// of the first two is missing, before the first piece. The same files make the same bytes.
base::Status pack_adapter(const std::filesystem::path& folder,
                          const std::function<bool(std::string_view)>& sink);

}  // namespace dex::client
