#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"
#include "services/text/chat_template.h"
#include "services/text/row.h"
#include "services/text/tokenizer.h"
#include "services/text/truncation.h"

namespace dex::text {

// Why a row gives nothing to train on: a token code of api.md §5 and words for the user.
struct Drop {
  std::string_view code;  // "no_trainable_tokens"; a string literal
  std::string message;
};

// Exactly what training sees of a row, or of one chunk of it.
struct EncodedRow {
  std::vector<int32_t> ids;
  // weights[i] counts the prediction of ids[i] from those before it; 0 = not trained. weights[0] is
  // always 0. Same size as ids.
  std::vector<float> weights;
  int32_t row_tokens = 0;                  // of the whole row, before it was cut
  int32_t prompt_tokens = 0;               // ids of weight 0
  int32_t trainable_tokens = 0;            // the others
  int32_t truncated_tokens = 0;            // ids of the row that were cut off; with CHUNK none are
  int32_t truncated_trainable_tokens = 0;  // those of them that would have been trained
  std::optional<Drop> drop;  // set: not to be trained; ids and weights are then for looking at only
};

// Turns rows into token ids and loss weights by the rules of api.md §5. Thread-safe.
class RowEncoder {
 public:
  struct Options {
    int32_t max_seq_length = 0;  // 0: no limit; else ≥ 2
    Truncation truncation = Truncation::kAuto;
    bool train_on_inputs = false;  // text rows train everything in any case
    int32_t vocab_size = 0;        // ids of tokens rows must be below; 0: the tokenizer's
  };

  // Both outlive this object. Rows of ids need neither, chats both, others the tokenizer; what is
  // missing drops the row.
  RowEncoder(const Tokenizer* tokenizer, const ChatTemplate* chat_template, Options options);

  // At least one entry. More than one only with CHUNK; chunks without a trained token are left out.
  // If `drop` is set, there is only that entry.
  std::vector<EncodedRow> encode(const Row& row) const;

 private:
  struct Whole {  // a row before it is cut
    WeightedIds tokens;
    std::optional<Drop> drop;
  };
  Whole encode_chat(const Row& row) const;
  Whole encode_pair(const Row& row) const;
  Whole encode_text(const Row& row) const;
  Whole encode_tokens(const Row& row) const;
  base::Result<std::vector<int32_t>> encode_start(std::string_view text) const;
  void append_eos(WeightedIds& tokens) const;
  bool has_doubled_bos(const std::vector<int32_t>& ids) const;
  std::vector<EncodedRow> fit(WeightedIds tokens, RowFormat format) const;

  const Tokenizer* tokenizer_;
  const ChatTemplate* chat_template_;
  Options options_;
};

}  // namespace dex::text
