#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace dex::text {

// The row formats of api.md §5.
enum class RowFormat { kChat, kPromptCompletion, kText, kTokens };
std::string_view name(RowFormat format);  // "prompt_completion"

// One turn of a chat.
struct Message {
  std::string role;  // system, developer, user, assistant or tool
  std::string content;
  std::string name = {};                        // empty: absent
  std::optional<double> weight = std::nullopt;  // 0–1, assistant only; absent: 1
};

// What one training row says, free of files and lines. Only the fields of its format are filled.
struct Row {
  RowFormat format = RowFormat::kText;
  std::vector<Message> messages;    // chat
  std::string prompt, completion;   // prompt_completion
  std::string text;                 // text
  std::vector<int32_t> input_ids;   // tokens
  std::vector<float> loss_weights;  // tokens: one an id, 0 = not trained
};

// Equal rows have equal hashes, on every machine and in every version: the validation split hangs
// on it.
uint64_t content_hash(const Row& row);

}  // namespace dex::text
