#include "services/gateway/openai/adapter_request.h"

namespace dex::gateway::openai {

namespace {

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.find('\\') != std::string::npos ||
         text.starts_with('.') || text.starts_with('~');
}

}  // namespace

base::Result<v1::LoadAdapterRequest> read_load_adapter(const json& body) {
  Faults faults;
  ObjectReader reader(body, "", faults);
  const std::string name = reader.required_text("lora_name");
  const std::string source = reader.required_text("lora_path");
  (void)reader.boolean("load_inplace");
  reader.accept({"base_model_name"});
  if (is_path(source)) {
    faults.add("PATH_NOT_ALLOWED", "lora_path",
               "must be the id of an adapter on this server, not a path or an address; dexctl "
               "adapters import brings one in");
  } else if (!name.empty() && !source.empty() && name != source) {
    reader.unsupported("lora_name", "must be the adapter's id, '" + source.substr(0, 255) +
                                        "': this server has no aliases yet");
  }
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  v1::LoadAdapterRequest request;
  request.set_id(source);
  return request;
}

base::Result<v1::UnloadAdapterRequest> read_unload_adapter(const json& body) {
  Faults faults;
  ObjectReader reader(body, "", faults);
  v1::UnloadAdapterRequest request;
  request.set_id(reader.required_text("lora_name"));
  reader.accept({"lora_int_id"});
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  return request;
}

}  // namespace dex::gateway::openai
