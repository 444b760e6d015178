#pragma once

#include "dex/internal/v1/frames.pb.h"
#include "worker/serve/request.h"
#include "worker/serve/text_model.h"

namespace dex::serve {

// What the tokenizer alone can answer: ids of a text or a chat, the text of ids, the special tokens
// and the template. Fills `out` with the answer or an error, its number included. Takes as long as
// the text is; never blocks. No LibTorch header may meet this one.
void answer_text(const dex::internal::v1::EngineCommand::Text& in, const TextModel& text,
                 const RequestLimits& limits, dex::internal::v1::EngineReport::Text& out);

}  // namespace dex::serve
