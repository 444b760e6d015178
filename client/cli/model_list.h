#pragma once

#include <filesystem>
#include <string>

#include "dex/v1/models.pb.h"
#include "services/base/status.h"

// The operator's allow-list of base models, models.json, on the machine where it lies: no request
// names a path (api.md §2), so whoever may write the file decides what is served.
namespace dex::cli {

// Whether a model of that name can be added: the list can be read, the name is one
// ([a-z0-9][a-z0-9.-]{0,63}) and not taken. INVALID_FIELD, NAME_TAKEN, NOT_FOUND.
base::Status check_new_model(const std::filesystem::path& list, const std::string& name);

// What the list will say of the Hugging Face folder: its hashes (architecture.md §6) and its
// config.json's family; title, license and languages of `like`. INVALID_FIELD for a folder without
// config.json, tokenizer.json or weights. Reads all bytes.
base::Result<v1::Model> described_model(const std::filesystem::path& folder, const v1::Model& like);

// Adds it, and leaves the other entries as they are; a folder below the list's is named relative to
// it. Readers see the old list or the new one. Same errors as check_new_model.
base::Status add_model(const std::filesystem::path& list, const v1::Model& model,
                       const std::filesystem::path& folder);

}  // namespace dex::cli
