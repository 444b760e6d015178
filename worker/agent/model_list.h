#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace dex::agent {

// A base model of the operator's allow-list: the only place where a name becomes a folder.
struct BaseModelEntry {
  std::string name;
  std::filesystem::path folder;  // absolute, or relative to the working directory like the list
  std::string weights_sha256;
  std::string tokenizer_sha256;
  std::string chat_template_sha256;
};

// Reads models.json ({"models": [{"name", "folder", "weights_sha256", …}]}); folders are relative
// to the file. Refuses a file over 1 MiB, one that is not such a list, and names outside api.md §1.
base::Result<std::vector<BaseModelEntry>> read_model_list(const std::filesystem::path& file);

// The entry of that name, or null.
const BaseModelEntry* find_model(const std::vector<BaseModelEntry>& models,
                                 const std::string& name);

}  // namespace dex::agent
