#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "worker/evaluate/subject.h"

namespace dex::serve {

// In which order `items` are best scored, so that a beginning which several share (few-shot
// examples, a question with its choices) is computed once: the engine can take from its KV cache
// only what an earlier request has finished. Items of one wave may run together; an item waits for
// the next wave while one of its own is about to compute a block that it could take. Every item is
// in exactly one wave, in its order. `block_tokens`: what the cache shares is whole blocks.
std::vector<std::vector<size_t>> prefix_waves(std::span<const evaluate::Subject::Scoring> items,
                                              int32_t block_tokens);

}  // namespace dex::serve
