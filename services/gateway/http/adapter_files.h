#pragma once

#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"

namespace dex::gateway::http {

// GET /adapters/{id}/download (the adapter's tar, or with ?export=<id> that export's) and
// POST /adapters/import (a form, form_upload.h). `upstream` outlives the router.
void add_adapter_files(Router& router, Upstream& upstream);

}  // namespace dex::gateway::http
