#pragma once

#include "dex/v1/adapters.pb.h"
#include "dex/v1/models.pb.h"
#include "services/gateway/openai/json_body.h"

// Base models and adapters as OpenAI's and vLLM's model objects (api.md §7). Pure.
namespace dex::gateway::openai {

// {id, object: "model", created, owned_by, root, parent, max_model_len, dex}. A base has no time of
// its own: `created` is 0.
json model_object(const v1::Model& model);

// The same of an adapter; `base` may be null when its base is not on the allow-list any more.
json model_object(const v1::Adapter& adapter, const v1::Model* base);

// What an alias points to under the alias's name: `root` is the adapter's id.
json alias_object(const std::string& alias, const v1::Adapter& adapter, const v1::Model* base);

// Whether a name has the form of an adapter's id ("ft:…"); neither a base's name nor
// an alias has.
bool is_adapter_id(std::string_view name);

}  // namespace dex::gateway::openai
