#include "scheduler/server/model_catalog.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "scheduler/server/model_shape.h"
#include "services/base/files.h"
#include "services/base/json_depth.h"

namespace dex::server {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kLargestConfigBytes = 1 << 20;

base::Result<json> read_json(const fs::path& path) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestConfigBytes));
  json value =
      base::nests_deeper(text) ? json() : json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return base::invalid_argument("INVALID_FIELD", path.string() + " is not a JSON object");
  }
  return value;
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace

base::Result<ModelCatalog> ModelCatalog::load(const fs::path& models_file) {
  DEX_ASSIGN_OR_RETURN(const json list, read_json(models_file));
  if (!list.contains("models") || !list["models"].is_array()) {
    return base::invalid_argument("INVALID_FIELD",
                                  models_file.string() + ": 'models' must be a list");
  }
  ModelCatalog catalog;
  for (const json& entry : list["models"]) {
    const std::string name = text(entry, "name");
    const std::string folder = text(entry, "folder");
    if (name.empty() || folder.empty()) {
      return base::invalid_argument(
          "INVALID_FIELD", models_file.string() + ": every model needs 'name' and 'folder'");
    }
    v1::Model model;
    model.set_name(name);
    model.set_display_name(text(entry, "display_name"));
    model.set_license(text(entry, "license"));
    model.set_weights_sha256(text(entry, "weights_sha256"));
    model.set_tokenizer_sha256(text(entry, "tokenizer_sha256"));
    model.set_chat_template_sha256(text(entry, "chat_template_sha256"));
    const json languages = entry.value("languages", json::array());
    for (const json& language : languages) {
      if (language.is_string()) model.add_languages(language.get<std::string>());
    }
    const auto config = read_json(models_file.parent_path() / folder / "config.json");
    const auto status = config.ok() ? read_model_shape(*config, model) : config.status();
    if (!status.ok()) return base::Status(status).with_prefix("model '" + name + "'");
    catalog.models_.push_back(model);
    catalog.folders_.push_back(models_file.parent_path() / folder);
  }
  return catalog;
}

base::Result<v1::Model> ModelCatalog::find(const std::string& name) const {
  std::string names;
  for (const v1::Model& model : models_) {
    if (model.name() == name) return model;
    names += (names.empty() ? "" : ", ") + model.name();
  }
  return base::not_found("MODEL_NOT_FOUND",
                         "There is no base model '" + name + "'; there are: " + names + ".")
      .with_violation("model", "is not one of: " + names)
      .with_metadata("resource_type", "model")
      .with_metadata("resource_name", name);
}

base::Result<fs::path> ModelCatalog::folder(const std::string& name) const {
  DEX_RETURN_IF_ERROR(find(name).status());
  const auto named = std::ranges::find(models_, name, [](const auto& m) { return m.name(); });
  return folders_[static_cast<size_t>(named - models_.begin())];
}

}  // namespace dex::server
