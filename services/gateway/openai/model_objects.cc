#include "services/gateway/openai/model_objects.h"

#include <algorithm>

#include "services/gateway/openai/proto_json.h"

namespace dex::gateway::openai {

namespace {

// "ft:<base>:<tenant>:<suffix>:<ulid>" → tenant
std::string owner_of(const std::string& adapter) {
  size_t begin = 0;
  for (int field = 0; field < 2 && begin != std::string::npos; ++field) {
    begin = adapter.find(':', begin);
    if (begin != std::string::npos) ++begin;
  }
  if (begin == std::string::npos) return "default";
  return adapter.substr(begin, adapter.find(':', begin) - begin);
}

}  // namespace

bool is_adapter_id(std::string_view name) {
  return name.starts_with("ft:");
}

json model_object(const v1::Model& model) {
  json dex = to_json(model);
  dex.erase("name");
  dex["loaded"] = model.served();
  return {{"id", model.name()},
          {"object", "model"},
          {"created", 0},
          {"owned_by", "dex"},
          {"root", model.name()},
          {"parent", nullptr},
          {"max_model_len", model.context_length()},
          {"dex", std::move(dex)}};
}

json model_object(const v1::Adapter& adapter, const v1::Model* base) {
  const bool loaded =
      std::any_of(adapter.replicas().begin(), adapter.replicas().end(),
                  [](const auto& replica) { return replica.state() == v1::Replica::STATE_LOADED; });
  json dex = to_json(adapter);
  for (const char* key : {"id", "base_model", "create_time"}) dex.erase(key);
  dex["loaded"] = loaded;
  if (adapter.has_branch_effect()) {
    // The verdict alone where lists are read; its figures by layer are GetAdapter's.
    dex["branch_effect"] =
        lower_name(v1::BranchEffect::Verdict_Name(adapter.branch_effect().verdict()), "VERDICT_");
  }
  const json created = unix_seconds(adapter.create_time());
  return {{"id", adapter.id()},
          {"object", "model"},
          {"created", created.is_null() ? json(0) : created},
          {"owned_by", owner_of(adapter.id())},
          {"root", adapter.base_model()},
          {"parent", adapter.base_model()},
          {"max_model_len", base == nullptr ? json() : json(base->context_length())},
          {"dex", std::move(dex)}};
}

json alias_object(const std::string& alias, const v1::Adapter& adapter, const v1::Model* base) {
  json object = model_object(adapter, base);
  object["root"] = adapter.id();
  object["id"] = alias;
  return object;
}

}  // namespace dex::gateway::openai
