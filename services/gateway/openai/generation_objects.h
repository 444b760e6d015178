#pragma once

#include <optional>
#include <string>
#include <vector>

#include "dex/v1/inference.pb.h"
#include "services/gateway/http/exchange.h"
#include "services/gateway/openai/generation_request.h"
#include "services/gateway/openai/logprobs.h"

// What generations answered, in OpenAI's shapes (api.md §6, §7). Pure.
namespace dex::gateway::openai {

// {id, object: "chat.completion" | "text_completion", created, model, system_fingerprint, choices,
// usage, dex}. `replies` are the answers to plan.requests, in that order. `dex` names the adapter
// and version that answered (null: the base), and the first choice's seed.
json generation_object(const GenerationPlan& plan,
                       const std::vector<v1::GenerateResponse>& replies);

// x-dex-adapter and x-dex-adapter-sha256; none where the base answered.
http::Headers adapter_headers(bool has_adapter, const v1::AdapterUsed& adapter);

// The chunks of a streamed answer, all with one id, time and model, which those of the first
// choice that begins are. Not thread-safe.
class ChunkMaker {
 public:
  explicit ChunkMaker(const GenerationPlan& plan);

  // The first chunk of a choice: in a chat it has the role; nothing for a completion.
  std::optional<json> start(size_t choice, const v1::GenerateStreamResponse::Start& start);
  // Nothing for a delta without text, ids and log-probabilities: a character is incomplete.
  std::optional<json> delta(size_t choice, const v1::GenerateStreamResponse::Delta& delta);
  json finish(size_t choice, const v1::GenerateStreamResponse::Finish& finish);
  // {…, choices: [], usage}: after the last finish, where it was asked for.
  [[nodiscard]] json usage() const;
  [[nodiscard]] size_t finished() const { return finished_; }

 private:
  [[nodiscard]] json chunk(json choices) const;

  const GenerationPlan& plan_;
  std::optional<json> head_;  // what every chunk has
  json dex_;                  // of each choice's first chunk
  std::vector<TextPosition> positions_;
  std::vector<bool> told_;  // choices whose `dex` has been sent
  std::vector<v1::Usage> usages_;
  size_t finished_ = 0;
};

}  // namespace dex::gateway::openai
