#pragma once

#include <vector>

#include "dex/v1/inference.pb.h"
#include "services/gateway/openai/json_body.h"

// POST /v1/chat/completions and /v1/completions → generations of ours (api.md §6, §7). Pure.
namespace dex::gateway::openai {

// What a body asks for. Choice i is the answer to requests[i]: prompt by prompt, the `n` choices of
// one beside each other.
struct GenerationPlan {
  bool chat = false;
  bool stream = false;
  bool include_usage = false;  // a last chunk with the usage and no choices
  int choices_per_prompt = 1;
  int top_logprobs = 0;  // of a chat: how many entries beside the chosen token
  std::vector<v1::GenerateRequest> requests;
};

inline constexpr size_t kMostChoices = 128;  // prompts × n
inline constexpr size_t kMostStops = 16;

// Values beyond their limits are the engine's to refuse, which knows them; what is wrong with the
// shape is refused here, all of it at once. With a `seed` the k-th choice of a prompt (from 0)
// samples with seed + k: choices differ, and a repeat gives the same ones.
base::Result<GenerationPlan> read_chat(const json& body);

// `prompt` is a string, strings, ids or lists of ids.
base::Result<GenerationPlan> read_completion(const json& body);

}  // namespace dex::gateway::openai
