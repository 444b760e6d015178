#include "worker/agent/model_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/ids.h"
#include "services/base/json_depth.h"

namespace dex::agent {

namespace {

constexpr int64_t kLargestList_bytes = 1 << 20;

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

}  // namespace

base::Result<std::vector<BaseModelEntry>> read_model_list(const std::filesystem::path& file) {
  DEX_ASSIGN_OR_RETURN(const auto text, base::read_file(file, kLargestList_bytes));
  const auto json = base::nests_deeper(text)
                        ? nlohmann::json()
                        : nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("models") || !json["models"].is_array()) {
    return base::invalid_argument("INVALID_FIELD",
                                  file.string() +
                                      " is not a list of models; {\"models\": [{\"name\": …, "
                                      "\"folder\": …}]} would be right");
  }
  std::vector<BaseModelEntry> models;
  for (const auto& item : json["models"]) {
    BaseModelEntry entry;
    if (item.is_object()) {
      entry.name = text_of(item, "name");
      entry.folder = text_of(item, "folder");
      entry.weights_sha256 = text_of(item, "weights_sha256");
      entry.tokenizer_sha256 = text_of(item, "tokenizer_sha256");
      entry.chat_template_sha256 = text_of(item, "chat_template_sha256");
    }
    if (!base::is_model_name(entry.name) || entry.folder.empty()) {
      return base::invalid_argument(
          "INVALID_FIELD",
          file.string() + ": model " + std::to_string(models.size()) +
              " needs a name like smollm2-135m-instruct and a folder, got " +
              item.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 200));
    }
    if (entry.folder.is_relative()) entry.folder = file.parent_path() / entry.folder;
    models.push_back(std::move(entry));
  }
  return models;
}

const BaseModelEntry* find_model(const std::vector<BaseModelEntry>& models,
                                 const std::string& name) {
  const auto found = std::ranges::find(models, name, &BaseModelEntry::name);
  return found == models.end() ? nullptr : &*found;
}

}  // namespace dex::agent
