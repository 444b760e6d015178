#include "services/text/special_tokens.h"

#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/json_depth.h"

namespace dex::text {

namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int64_t kMaxConfigBytes =
    8 << 20;  // added_tokens_decoder of large vocabularies is about 1 MB
constexpr int64_t kMaxTemplateBytes = 1 << 20;  // real ones end at 20 kB

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// An empty object if there is no such file.
base::Result<json> read_object(const fs::path& path) {
  if (!is_there(path)) return json::object();
  DEX_ASSIGN_OR_RETURN(const std::string content, base::read_file(path, kMaxConfigBytes));
  if (base::nests_deeper(content)) {
    return base::invalid_argument("INVALID_FIELD", path.string() + " is nested deeper than " +
                                                       std::to_string(base::kDeepestJson));
  }
  json value = json::parse(content, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return base::invalid_argument("INVALID_FIELD", path.string() + " must be a JSON object");
  }
  return value;
}

// A token is written as a string or as {"content": string, …}.
std::optional<std::string> token_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_object() && value.contains("content") && value["content"].is_string()) {
    return value["content"].get<std::string>();
  }
  return std::nullopt;
}

void collect_tokens(const json& config, std::map<std::string, std::string>& tokens) {
  for (const auto& [key, value] : config.items()) {
    const bool names_a_token = key.size() > 6 && key.ends_with("_token");
    if (!names_a_token) continue;
    if (auto text = token_text(value)) tokens.emplace(key, std::move(*text));
  }
}

// A string, or a list of {"name", "template"} of which "default" counts.
std::optional<std::string> template_in(const json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const json& entry : *found) {
    if (entry.is_object() && entry.value("name", json()) == "default" &&
        entry.contains("template") && entry["template"].is_string()) {
      return entry["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

std::vector<int32_t> eos_ids(const json& generation) {
  std::vector<int32_t> ids;
  const auto found = generation.find("eos_token_id");
  if (found == generation.end()) return ids;
  for (const json& id : found->is_array() ? *found : json::array({*found})) {
    if (id.is_number_unsigned() && id.get<uint64_t>() < (1u << 22))
      ids.push_back(id.get<int32_t>());
  }
  return ids;
}

}  // namespace

base::Result<ModelTextConfig> ModelTextConfig::load(const fs::path& folder) {
  ModelTextConfig config;
  DEX_ASSIGN_OR_RETURN(const json tokenizer, read_object(folder / "tokenizer_config.json"));
  DEX_ASSIGN_OR_RETURN(const json map, read_object(folder / "special_tokens_map.json"));
  DEX_ASSIGN_OR_RETURN(const json generation, read_object(folder / "generation_config.json"));
  collect_tokens(tokenizer, config.tokens);
  collect_tokens(map, config.tokens);  // emplace: tokenizer_config.json wins
  config.generation_eos_ids = eos_ids(generation);
  config.chat_template = template_in(tokenizer);
  if (const fs::path file = folder / "chat_template.jinja"; is_there(file)) {
    DEX_ASSIGN_OR_RETURN(config.chat_template, base::read_file(file, kMaxTemplateBytes));
  }
  if (config.chat_template &&
      config.chat_template->size() > static_cast<size_t>(kMaxTemplateBytes)) {
    return base::invalid_argument("TOO_LARGE", "the chat template of " + folder.string() + " has " +
                                                   std::to_string(config.chat_template->size()) +
                                                   " bytes, at most " +
                                                   std::to_string(kMaxTemplateBytes) + " are read");
  }
  return config;
}

}  // namespace dex::text
