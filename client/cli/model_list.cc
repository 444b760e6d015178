#include "client/cli/model_list.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>
#include <vector>

#include "services/base/files.h"
#include "services/base/ids.h"
#include "services/base/sha256.h"

namespace dex::cli {

namespace {

namespace fs = std::filesystem;
using OrderedJson = nlohmann::ordered_json;
using base::Result;
using base::Status;

constexpr int64_t kLargestList_bytes = 1 << 20;
constexpr int64_t kLargestModelJson_bytes = 64 << 20;

Status bad_list(const std::string& what) {
  return base::invalid_argument("INVALID_FIELD", what);
}

Result<OrderedJson> read_list(const fs::path& list) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(list, kLargestList_bytes));
  OrderedJson json = OrderedJson::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("models") || !json["models"].is_array())
    return bad_list(list.string() + " is not a list of models ({\"models\": […]})");
  return json;
}

Status check_name(const fs::path& list, const OrderedJson& json, const std::string& name) {
  if (!base::is_model_name(name)) {
    return bad_list("\"" + name + "\" is no model's name: 1 to 64 of a-z, 0-9, '.' and '-', " +
                    "beginning with a letter or digit");
  }
  for (const auto& entry : json["models"]) {
    if (entry.is_object() && entry.contains("name") && entry["name"] == name) {
      return {base::Code::kAlreadyExists, "NAME_TAKEN",
              list.string() + " has a model \"" + name + "\" already"};
    }
  }
  return {};
}

// Of the weight file, or for shards of the lines "<sha256>  <file>\n" in name order.
Result<std::string> weights_sha256(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->path().extension() == ".safetensors") names.push_back(it->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  if (names.empty()) return bad_list(folder.string() + " has no *.safetensors");
  if (names == std::vector<std::string>{"model.safetensors"})
    return base::sha256_file(folder / names[0]);
  std::string lines;
  for (const std::string& name : names) {
    DEX_ASSIGN_OR_RETURN(const std::string hash, base::sha256_file(folder / name));
    lines += hash + "  " + name + "\n";
  }
  return base::sha256_hex(lines);
}

Result<nlohmann::json> model_json(const fs::path& path) {
  DEX_ASSIGN_OR_RETURN(const std::string text, base::read_file(path, kLargestModelJson_bytes));
  nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return bad_list(path.string() + " is not a JSON object");
  return json;
}

// Empty: the folder has no template.
Result<std::string> chat_template_sha256(const fs::path& folder) {
  std::error_code ignored;
  if (fs::exists(folder / "chat_template.jinja", ignored))
    return base::sha256_file(folder / "chat_template.jinja");
  if (!fs::exists(folder / "tokenizer_config.json", ignored)) return std::string();
  DEX_ASSIGN_OR_RETURN(const auto json, model_json(folder / "tokenizer_config.json"));
  const auto found = json.find("chat_template");
  if (found == json.end() || !found->is_string()) return std::string();
  return base::sha256_hex(found->get<std::string>());
}

}  // namespace

Status check_new_model(const fs::path& list, const std::string& name) {
  DEX_ASSIGN_OR_RETURN(const OrderedJson json, read_list(list));
  return check_name(list, json, name);
}

Result<v1::Model> described_model(const fs::path& folder, const v1::Model& like) {
  v1::Model model;
  DEX_ASSIGN_OR_RETURN(const auto config, model_json(folder / "config.json"));
  model.set_family(config.value("model_type", ""));
  model.set_display_name(like.display_name());
  model.set_license(like.license());
  *model.mutable_languages() = like.languages();
  DEX_ASSIGN_OR_RETURN(*model.mutable_weights_sha256(), weights_sha256(folder));
  DEX_ASSIGN_OR_RETURN(*model.mutable_tokenizer_sha256(),
                       base::sha256_file(folder / "tokenizer.json"));
  DEX_ASSIGN_OR_RETURN(*model.mutable_chat_template_sha256(), chat_template_sha256(folder));
  return model;
}

Status add_model(const fs::path& list, const v1::Model& model, const fs::path& folder) {
  DEX_ASSIGN_OR_RETURN(OrderedJson json, read_list(list));
  DEX_RETURN_IF_ERROR(check_name(list, json, model.name()));
  const fs::path home = fs::absolute(list).lexically_normal().parent_path();
  const fs::path place = fs::absolute(folder).lexically_normal();
  const fs::path relative = place.lexically_relative(home);
  const bool below = !relative.empty() && relative.begin()->string() != "..";
  OrderedJson entry = {{"name", model.name()},
                       {"folder", (below ? relative : place).string()},
                       {"display_name", model.display_name()},
                       {"family", model.family()},
                       {"license", model.license()},
                       {"weights_sha256", model.weights_sha256()},
                       {"tokenizer_sha256", model.tokenizer_sha256()}};
  if (!model.chat_template_sha256().empty())
    entry["chat_template_sha256"] = model.chat_template_sha256();
  entry["languages"] = OrderedJson::array();
  for (const std::string& language : model.languages()) entry["languages"].push_back(language);
  json["models"].push_back(std::move(entry));
  return base::write_file_atomically(list, json.dump(2) + "\n");
}

}  // namespace dex::cli
