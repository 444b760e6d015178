#pragma once

#include <string>

#include "services/gateway/openai/json_body.h"

// vLLM's requests to load and unload (api.md §7). Pure.
namespace dex::gateway::openai {

// {lora_name, lora_path, load_inplace=false}: lora_path is an adapter's id or an alias; a path or
// an address is PATH_NOT_ALLOWED. lora_name is that same id, or the alias that shall point to it.
struct LoraLoad {
  std::string adapter;
  std::string alias;      // empty: just load the adapter; load_inplace changes nothing then
  bool in_place = false;  // an alias that is there already moves
};
base::Result<LoraLoad> read_load_adapter(const json& body);

// lora_name of {lora_name}, with vLLM's lora_int_id accepted: an adapter's id or an alias.
base::Result<std::string> read_unload_adapter(const json& body);

}  // namespace dex::gateway::openai
