#include "services/gateway/openai/adapter_request.h"

#include "services/gateway/openai/model_objects.h"

namespace dex::gateway::openai {

namespace {

bool is_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.find('\\') != std::string::npos ||
         text.starts_with('.') || text.starts_with('~');
}

}  // namespace

base::Result<LoraLoad> read_load_adapter(const json& body) {
  Faults faults;
  ObjectReader reader(body, "", faults);
  LoraLoad load;
  const std::string name = reader.required_text("lora_name");
  load.adapter = reader.required_text("lora_path");
  load.in_place = reader.boolean("load_inplace").value_or(false);
  reader.accept({"base_model_name"});
  if (is_path(load.adapter)) {
    faults.add("PATH_NOT_ALLOWED", "lora_path",
               "must be the id of an adapter on this server or an alias, not a path or an address; "
               "dexctl adapters import brings one in");
  } else if (is_adapter_id(name) && name != load.adapter) {
    faults.add("INVALID_FIELD", "lora_name",
               "is an adapter's id, and not of the one in lora_path; give that id again, or a name "
               "that shall be its alias");
  }
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  if (!is_adapter_id(name)) load.alias = name;
  return load;
}

base::Result<std::string> read_unload_adapter(const json& body) {
  Faults faults;
  ObjectReader reader(body, "", faults);
  std::string name = reader.required_text("lora_name");
  reader.accept({"lora_int_id"});
  reader.end();
  DEX_RETURN_IF_ERROR(faults.status());
  return name;
}

}  // namespace dex::gateway::openai
