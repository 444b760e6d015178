#pragma once

#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"

namespace dex::gateway::http {

// POST /rpc/dex.v1.<Service>/<Rpc>: every public RPC in protobuf JSON (json_message.h), found by
// descriptor, so a new RPC needs no line here. Unary calls answer JSON; server streams answer
// server-sent events, one message each, errors as the last one (or, before the first message, as
// HTTP); client streams take a form (form_upload.h). `upstream` outlives the router.
void add_rpc_bridge(Router& router, Upstream& upstream);

// How long the bridge waits for a call: api.md §1, deadlines. 0: as long as the client listens.
std::chrono::milliseconds timeout_of(std::string_view path, bool streaming);

// The headers of an answer that metadata of the call becomes: those that start with "dex-".
Headers reply_headers(const Headers& metadata);

}  // namespace dex::gateway::http
