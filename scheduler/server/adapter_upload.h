#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>

#include "services/base/status.h"

namespace dex::server {

// The tar of an adapter that a client sends in pieces; nullopt after the last one.
using UploadChunks = std::function<base::Result<std::optional<std::string>>()>;

// Largest tar that is taken: an artefact of W_K, W_V and W_O of a model of tens of billions.
inline constexpr int64_t kLargestAdapterTar_bytes = int64_t{8} << 30;

// Unpacks it into `folder`, which must not exist: adapter_config.json and
// adapter_model.safetensors, and of ours checksums.json and provenance.json; README.md, which PEFT
// writes, is dropped, anything else refused by name. Holds every file against checksums.json, where
// there is one; only a LoRA of PEFT's may lack it. Answers the tar's SHA-256. Looks at no tensor:
// that is a worker's.
//
// INVALID_FIELD, TOO_LARGE, CHECKSUM_MISMATCH with the file or field; STORAGE_FULL. After a failure
// the folder is as far as it got. Blocks on the client and the disk.
base::Result<std::string> receive_adapter(const std::filesystem::path& folder,
                                          std::optional<int64_t> promised_bytes,
                                          const UploadChunks& chunks);

}  // namespace dex::server
