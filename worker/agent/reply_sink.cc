#include "worker/agent/reply_sink.h"

namespace dex::agent {

void ReplyBuilder::add(const dex::v1::GenerateStreamResponse& event) {
  if (event.has_start()) {
    const auto& start = event.start();
    reply_.set_id(start.id());
    reply_.set_model(start.model());
    if (start.has_adapter()) *reply_.mutable_adapter() = start.adapter();
    reply_.set_seed(start.seed());
    *reply_.mutable_create_time() = start.create_time();
    reply_.set_system_fingerprint(start.system_fingerprint());
  } else if (event.has_delta()) {
    reply_.mutable_text()->append(event.delta().text());
    reply_.mutable_token_ids()->MergeFrom(event.delta().token_ids());
    reply_.mutable_logprobs()->MergeFrom(event.delta().logprobs());
  }
}

dex::v1::GenerateResponse ReplyBuilder::take(
    const dex::v1::GenerateStreamResponse::Finish& finish) {
  reply_.set_finish_reason(finish.finish_reason());
  reply_.set_stop_reason(finish.stop_reason());
  *reply_.mutable_usage() = finish.usage();
  *reply_.mutable_timing() = finish.timing();
  return std::move(reply_);
}

}  // namespace dex::agent
