#pragma once

#include <string>

#include "services/base/status.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/openai/json_body.h"

namespace dex::gateway::openai {

// What a list is asked with: `limit=20 (1–1000)` and `after`, the id of the last item seen.
struct ListQuery {
  int limit = 20;
  std::string after;
};

// Query parameters besides `limit` and `after` must be among `more`: UNKNOWN_FIELD else, and
// INVALID_FIELD for one that comes twice. `metadata` in `more` stands for every `metadata[key]`.
base::Result<ListQuery> read_list_query(const http::Request& request,
                                        std::initializer_list<std::string_view> more);

// {object: "list", data, first_id, last_id, has_more}; `data` is a list of objects with an `id`.
json list_object(json data, bool has_more);

// {id, object, deleted: true}
json deleted_object(const std::string& id, const std::string& object);

}  // namespace dex::gateway::openai
