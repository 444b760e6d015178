#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "services/base/status.h"

namespace dex::text {

// What a model's folder says about its special tokens and its template, from tokenizer_config.json,
// special_tokens_map.json, generation_config.json and chat_template.jinja. Missing files are fine;
// a broken one, or one over its size limit, is an error.
struct ModelTextConfig {
  // "bos_token" → "<s>", also eos, pad, unk and others that the files name; templates see these
  // names.
  std::map<std::string, std::string> tokens;
  std::vector<int32_t> generation_eos_ids;   // eos_token_id of generation_config.json
  std::optional<std::string> chat_template;  // chat_template.jinja, else tokenizer_config.json's

  // Blocks on the disk.
  static base::Result<ModelTextConfig> load(const std::filesystem::path& folder);
};

}  // namespace dex::text
