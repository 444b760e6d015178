#include "scheduler/server/model_catalog.h"

#include <nlohmann/json.hpp>

#include <algorithm>

#include "services/base/files.h"

namespace dex::server {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int64_t kLargestConfigBytes = 1 << 20;

base::Result<json> read_json(const fs::path& path) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestConfigBytes));
  json value = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!value.is_object()) {
    return base::invalid_argument("INVALID_FIELD", path.string() + " is not a JSON object");
  }
  return value;
}

std::string text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// A whole number of config.json; `otherwise` < 0 makes it required.
base::Result<int32_t> whole(const json& config, const char* key, int32_t otherwise = -1) {
  const auto found = config.find(key);
  if (found != config.end() && found->is_number_integer()) {
    const auto value = found->get<int64_t>();
    if (value > 0 && value <= INT32_MAX) return static_cast<int32_t>(value);
  }
  if (otherwise >= 0 && (found == config.end() || found->is_null())) return otherwise;
  return base::invalid_argument(
      "INVALID_FIELD", std::string("config.json: '") + key + "' must be a whole number above 0");
}

bool flag(const json& config, const char* key, bool otherwise) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() ? found->get<bool>() : otherwise;
}

// Every weight of a Llama-family model, counted from its shape.
int64_t parameter_count(const v1::Model& m) {
  const int64_t hidden = m.hidden_size();
  const int64_t query = int64_t{m.query_heads()} * m.head_dim();
  const int64_t key_value = int64_t{m.kv_heads()} * m.head_dim();
  const int64_t attention = hidden * query * 2 + hidden * key_value * 2;
  const int64_t biases = m.attention_bias() ? query + 2 * key_value + hidden : 0;
  const int64_t mlp = 3 * hidden * m.intermediate_size();
  const int64_t layer = attention + biases + mlp + 2 * hidden;
  const int64_t embedding = int64_t{m.vocab_size()} * hidden;
  return m.layers() * layer + hidden + embedding * (m.tied_embeddings() ? 1 : 2);
}

base::Status read_config(const fs::path& folder, v1::Model& model) {
  DEX_ASSIGN_OR_RETURN(const json config, read_json(folder / "config.json"));
  DEX_ASSIGN_OR_RETURN(const int32_t layers, whole(config, "num_hidden_layers"));
  DEX_ASSIGN_OR_RETURN(const int32_t heads, whole(config, "num_attention_heads"));
  DEX_ASSIGN_OR_RETURN(const int32_t kv_heads, whole(config, "num_key_value_heads", heads));
  DEX_ASSIGN_OR_RETURN(const int32_t hidden, whole(config, "hidden_size"));
  DEX_ASSIGN_OR_RETURN(const int32_t head_dim, whole(config, "head_dim", hidden / heads));
  DEX_ASSIGN_OR_RETURN(const int32_t intermediate, whole(config, "intermediate_size"));
  DEX_ASSIGN_OR_RETURN(const int32_t context, whole(config, "max_position_embeddings"));
  DEX_ASSIGN_OR_RETURN(const int32_t vocabulary, whole(config, "vocab_size"));
  model.set_layers(layers);
  model.set_query_heads(heads);
  model.set_kv_heads(kv_heads);
  model.set_head_dim(head_dim);
  model.set_hidden_size(hidden);
  model.set_intermediate_size(intermediate);
  model.set_context_length(context);
  model.set_vocab_size(vocabulary);
  model.set_attention_bias(flag(config, "attention_bias", false));
  model.set_tied_embeddings(flag(config, "tie_word_embeddings", false));
  model.set_parameters(parameter_count(model));
  return {};
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
    model.set_family(text(entry, "family"));
    model.set_license(text(entry, "license"));
    model.set_weights_sha256(text(entry, "weights_sha256"));
    model.set_tokenizer_sha256(text(entry, "tokenizer_sha256"));
    model.set_chat_template_sha256(text(entry, "chat_template_sha256"));
    const json languages = entry.value("languages", json::array());
    for (const json& language : languages) {
      if (language.is_string()) model.add_languages(language.get<std::string>());
    }
    if (auto status = read_config(models_file.parent_path() / folder, model); !status.ok()) {
      return std::move(status).with_prefix("model '" + name + "'");
    }
    catalog.models_.push_back(model);
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

}  // namespace dex::server
