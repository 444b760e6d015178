#pragma once

#include "dex/v1/adapters.pb.h"
#include "services/gateway/openai/json_body.h"

// vLLM's requests to load and unload (api.md §7). Pure.
namespace dex::gateway::openai {

// {lora_name, lora_path, load_inplace=false}: lora_path is an adapter's id; a path or an address is
// PATH_NOT_ALLOWED. There are no aliases yet, so lora_name must be that id: else
// UNSUPPORTED_PARAMETER. load_inplace changes nothing: an id never gets other content.
base::Result<v1::LoadAdapterRequest> read_load_adapter(const json& body);

// {lora_name}, with vLLM's lora_int_id accepted.
base::Result<v1::UnloadAdapterRequest> read_unload_adapter(const json& body);

}  // namespace dex::gateway::openai
