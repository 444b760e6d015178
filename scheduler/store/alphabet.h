#pragma once

#include <string>
#include <string_view>

#include "scheduler/store/records.h"
#include "services/base/status.h"

// Names and ids become parts of keys, so the store takes none outside its alphabet, whatever its
// callers have checked (jobs.md §1, api.md §1). Refusals are INVALID_ARGUMENT INVALID_FIELD.
namespace dex::store {

// Names of tenants and pools: [a-z0-9-]{1,32}.
bool is_name(std::string_view text);
// Ids of jobs, files, checkpoints: [a-z0-9:._-]{1,255}.
bool is_store_id(std::string_view text);
// What others choose (request ids, claim ids, unique names, workers) or contains such a name (ids
// of adapters, an operator's name of a base model): 1 to 255 printable ASCII characters, no space.
bool is_word(std::string_view text);

// A value as a message may show it: cut, and without bytes that text cannot carry.
std::string shown(const std::string& value);

base::Status check_tenant(const std::string& tenant);
base::Status check_name(const std::string& field, const std::string& name);
base::Status check_store_id(const std::string& field, const std::string& id);
base::Status check_word(const std::string& field, const std::string& word);
base::Status check_request(const RequestKey& request);  // an empty id is fine

}  // namespace dex::store
