#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace dex::evaluate {

// What the model allows of a sequence.
struct SequenceLimits {
  int64_t vocabulary = 0;
  int64_t context = 0;  // most ids
};

// A JSON array of arrays of token ids, e.g. [[504, 4041], [282, 1330, 7]], as `dex-engine heads`
// reads it. `source` names it in messages. Throws std::runtime_error naming sequence and place
// (counted from 1) for what is not that, for no sequence at all, ids that the model does not have,
// and sequences shorter than 2 ids (they predict nothing) or longer than the context.
std::vector<std::vector<int32_t>> parse_token_sequences(std::string_view json,
                                                        const std::string& source,
                                                        const SequenceLimits& limits);

}  // namespace dex::evaluate
