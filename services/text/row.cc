#include "services/text/row.h"

#include <bit>

namespace dex::text {

namespace {

// FNV-1a over the fields, each with its length in front so that moved borders change the hash, and
// a final mix (MurmurHash3's) so that every bit depends on every byte.
class Hasher {
 public:
  void add(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) step(static_cast<uint8_t>(value >> shift));
  }
  void add(std::string_view bytes) {
    add(bytes.size());
    for (const char c : bytes) step(static_cast<uint8_t>(c));
  }
  uint64_t finish() const {
    uint64_t h = state_;
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
  }

 private:
  void step(uint8_t byte) { state_ = (state_ ^ byte) * 0x100000001b3ull; }
  uint64_t state_ = 0xcbf29ce484222325ull;
};

}  // namespace

std::string_view name(RowFormat format) {
  switch (format) {
    case RowFormat::kChat:
      return "chat";
    case RowFormat::kPromptCompletion:
      return "prompt_completion";
    case RowFormat::kText:
      return "text";
    case RowFormat::kTokens:
      return "tokens";
  }
  return "unknown";
}

uint64_t content_hash(const Row& row) {
  Hasher hasher;
  hasher.add(name(row.format));
  hasher.add(row.messages.size());
  for (const Message& message : row.messages) {
    hasher.add(message.role);
    hasher.add(message.content);
    hasher.add(message.name);
    hasher.add(std::bit_cast<uint64_t>(message.weight.value_or(1.0)));
  }
  for (const std::string* text : {&row.prompt, &row.completion, &row.text}) hasher.add(*text);
  hasher.add(row.input_ids.size());
  for (const int32_t id : row.input_ids) hasher.add(static_cast<uint64_t>(id));
  for (const float weight : row.loss_weights) hasher.add(uint64_t{std::bit_cast<uint32_t>(weight)});
  return hasher.finish();
}

}  // namespace dex::text
