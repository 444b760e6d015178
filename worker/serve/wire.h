#pragma once

#include <cstdint>
#include <string>

#include "dex/internal/v1/frames.pb.h"
#include "services/base/status.h"
#include "worker/serve/request.h"
#include "worker/serve/text_model.h"

// protobuf ⇄ plain. Nothing here may meet a LibTorch header (performance.md §7).
namespace dex::serve::wire {

namespace pb = dex::v1;
namespace frames = dex::internal::v1;

// The plain request: text or chat in ids, defaults of api.md §6 filled in, `seed` where the request
// names none. Does not check limits (validate() does), but refuses a text that is far too long
// before it is encoded.
base::Result<Request> read_request(const pb::GenerateRequest& in, const TextModel& text,
                                   const RequestLimits& limits, uint64_t seed);

// `token_ids`: with the ids, as return_token_ids asks.
void write(const Delta& in, bool token_ids, pb::GenerateStreamResponse::Delta& out);
void write(const Outcome& in, pb::GenerateStreamResponse::Finish& out);
void write(const base::Status& in, frames::EngineReport::Error& out);

}  // namespace dex::serve::wire
