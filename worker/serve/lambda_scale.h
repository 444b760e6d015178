#pragma once

#include <cstdint>

#include "services/base/status.h"
#include "worker/serve/request.h"
#include "worker/serve/serving_model.h"

// What a request's dex_lambda_scale means for the adapter that answers (null: the base).
namespace dex::serve {

// OK, or why λ can't be scaled as the request asks, UNUSED_FIELD: what answers has no branch.
base::Status check_lambda_scale(const Request& request, const ServingAdapter* adapter);

// Whether the request needs this adapter with its branch apart (serving_model.h). At scale 1 the
// folded one answers, which costs nothing a token.
bool needs_branch_apart(const Request& request, const ServingAdapter* adapter);

// What a KV cache is shared by: an adapter at one scale of λ. The base has 0.
uint64_t cache_key(const Request& request, const ServingAdapter* adapter);

}  // namespace dex::serve
