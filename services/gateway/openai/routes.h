#pragma once

#include <string_view>

#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"
#include "services/rpc/room.h"

namespace dex::gateway::openai {

// OpenAI's dialect of the public door, and the routes of vLLM beside it (api.md §7): files,
// fine_tuning, models, chat, completions, adapters, tokenizers, and /openapi.json, which describes
// them. `upstream` and `room` outlive the server.
void add_openai_routes(http::Router& router, http::Upstream& upstream, const rpc::Room& room);

// The description of these routes, OpenAPI 3.1: openapi.json of this folder.
std::string_view openapi_text();

}  // namespace dex::gateway::openai
