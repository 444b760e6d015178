#include "services/text/row_encoder.h"

#include <algorithm>

namespace dex::text {

namespace {

constexpr std::string_view kTemplateError = "template_error";
constexpr std::string_view kDoubledBos = "doubled_bos";
constexpr std::string_view kOutOfRange = "token_id_out_of_range";
constexpr std::string_view kNothingToTrain = "no_trainable_tokens";
constexpr std::string_view kTooLong = "longer_than_context";

void append(WeightedIds& to, const std::vector<int32_t>& ids, float weight) {
  to.ids.insert(to.ids.end(), ids.begin(), ids.end());
  to.weights.insert(to.weights.end(), ids.size(), weight);
}

EncodedRow finished(WeightedIds tokens) {
  EncodedRow row;
  row.trainable_tokens =
      static_cast<int32_t>(std::ranges::count_if(tokens.weights, [](float w) { return w > 0; }));
  row.prompt_tokens = static_cast<int32_t>(tokens.ids.size()) - row.trainable_tokens;
  row.ids = std::move(tokens.ids);
  row.weights = std::move(tokens.weights);
  return row;
}

// Gives the tokens of an assistant's turn their weight: those that begin in its words and those
// after them up to the end-of-turn token, which must come before `limit` (where the next message's
// words begin).
void weigh_turn(const Tokenizer& tokenizer, const Tokenizer::Encoding& encoding, const Span& span,
                size_t limit, float weight, std::vector<float>& weights) {
  const auto index_at = [&](size_t byte) {
    return static_cast<size_t>(std::ranges::lower_bound(encoding.starts, byte) -
                               encoding.starts.begin());
  };
  const size_t begin = index_at(span.begin), end = index_at(span.end);
  size_t stop = end;
  if (span.whole_turn) {
    // The last end-of-turn token inside; "\n" and the like behind it are never asked of the model.
    for (size_t i = end; i-- > begin;) {
      if (tokenizer.is_stop(encoding.ids[i])) {
        stop = i + 1;
        break;
      }
    }
  } else {
    const size_t bound = index_at(limit);
    for (size_t i = end; i < bound; ++i) {
      if (tokenizer.is_stop(encoding.ids[i])) {
        stop = i + 1;
        break;
      }
    }
  }
  for (size_t i = begin; i < stop; ++i) weights[i] = weight;
}

}  // namespace

RowEncoder::RowEncoder(const Tokenizer* tokenizer, const ChatTemplate* chat_template,
                       Options options)
    : tokenizer_(tokenizer), chat_template_(chat_template), options_(options) {}

std::vector<EncodedRow> RowEncoder::encode(const Row& row) const {
  Whole whole;
  if (row.format == RowFormat::kTokens) {
    whole = encode_tokens(row);
  } else if (tokenizer_ == nullptr) {
    whole.drop = Drop{kTemplateError, "rows of format " + std::string(name(row.format)) +
                                          " need the model's tokenizer.json, and there is none"};
  } else if (row.format == RowFormat::kChat) {
    whole = encode_chat(row);
  } else {
    whole = row.format == RowFormat::kText ? encode_text(row) : encode_pair(row);
  }
  // A row's first id has nothing before it to predict it from.
  if (!whole.tokens.weights.empty()) whole.tokens.weights.front() = 0;
  const auto size = static_cast<int32_t>(whole.tokens.ids.size());
  if (whole.drop) {
    EncodedRow dropped = finished(std::move(whole.tokens));
    dropped.row_tokens = size;
    dropped.drop = std::move(whole.drop);
    return {std::move(dropped)};
  }
  std::vector<EncodedRow> rows = fit(std::move(whole.tokens), row.format);
  for (EncodedRow& part : rows) part.row_tokens = size;
  return rows;
}

RowEncoder::Whole RowEncoder::encode_chat(const Row& row) const {
  Whole whole;
  if (chat_template_ == nullptr) {
    whole.drop = Drop{kTemplateError, "chat rows need a chat template, and the model has none"};
    return whole;
  }
  const auto chat = chat_template_->render_with_spans(row.messages);
  if (!chat.ok()) {
    whole.drop = Drop{kTemplateError, chat.status().message()};
    return whole;
  }
  const auto encoding = tokenizer_->encode_with_starts(chat->text);
  if (!encoding.ok()) {
    whole.drop = Drop{kTemplateError, encoding.status().message()};
    return whole;
  }
  whole.tokens.ids = encoding->ids;
  whole.tokens.weights.assign(encoding->ids.size(), options_.train_on_inputs ? 1.0f : 0.0f);
  for (size_t i = 0; i < row.messages.size(); ++i) {
    if (row.messages[i].role != "assistant") continue;
    size_t limit = chat->text.size();
    for (size_t j = i + 1; j < row.messages.size(); ++j) {
      if (!chat->spans[j]) continue;
      limit = chat->spans[j]->begin;
      break;
    }
    weigh_turn(*tokenizer_, *encoding, *chat->spans[i], limit,
               static_cast<float>(row.messages[i].weight.value_or(1.0)), whole.tokens.weights);
  }
  if (has_doubled_bos(whole.tokens.ids)) {
    whole.drop = Drop{kDoubledBos,
                      "the rendered chat begins with the BOS token twice: the template writes it "
                      "already, take it out of the first message"};
  }
  return whole;
}

// Prompt and completion are encoded apart, so that the prompt's ids are those that serving will
// send.
RowEncoder::Whole RowEncoder::encode_pair(const Row& row) const {
  Whole whole;
  const auto prompt = encode_start(row.prompt);
  const auto completion = tokenizer_->encode(row.completion, false);
  if (!prompt.ok() || !completion.ok()) {
    whole.drop =
        Drop{kTemplateError, (prompt.ok() ? completion.status() : prompt.status()).message()};
    return whole;
  }
  append(whole.tokens, *prompt, options_.train_on_inputs ? 1.0f : 0.0f);
  append(whole.tokens, *completion, 1.0f);
  append_eos(whole.tokens);
  return whole;
}

RowEncoder::Whole RowEncoder::encode_text(const Row& row) const {
  Whole whole;
  const auto ids = encode_start(row.text);
  if (!ids.ok()) {
    whole.drop = Drop{kTemplateError, ids.status().message()};
    return whole;
  }
  append(whole.tokens, *ids, 1.0f);
  append_eos(whole.tokens);
  return whole;
}

RowEncoder::Whole RowEncoder::encode_tokens(const Row& row) const {
  Whole whole;
  whole.tokens = {row.input_ids, row.loss_weights};
  const int32_t limit =
      options_.vocab_size > 0 ? options_.vocab_size : (tokenizer_ ? tokenizer_->vocab_size() : 0);
  for (size_t i = 0; i < row.input_ids.size(); ++i) {
    if (const int32_t id = row.input_ids[i]; id < 0 || (limit > 0 && id >= limit)) {
      whole.drop =
          Drop{kOutOfRange, "input_ids[" + std::to_string(i) + "] is " + std::to_string(id) +
                                ", ids must be from 0 to " + std::to_string(limit - 1) +
                                ": were the rows made with this model's tokenizer?"};
      return whole;
    }
  }
  if (has_doubled_bos(row.input_ids)) {
    whole.drop = Drop{kDoubledBos, "input_ids begins with the BOS token twice; take one out"};
  }
  return whole;
}

// With the tokenizer's BOS, unless the text brings its own.
base::Result<std::vector<int32_t>> RowEncoder::encode_start(std::string_view text) const {
  if (tokenizer_->adds_bos()) {
    DEX_ASSIGN_OR_RETURN(std::vector<int32_t> plain, tokenizer_->encode(text, false));
    if (!plain.empty() && plain.front() == *tokenizer_->bos_id()) return plain;
  }
  return tokenizer_->encode(text, true);
}

void RowEncoder::append_eos(WeightedIds& tokens) const {
  const auto eos = tokenizer_->eos_id();
  if (eos && (tokens.ids.empty() || tokens.ids.back() != *eos)) append(tokens, {*eos}, 1.0f);
}

bool RowEncoder::has_doubled_bos(const std::vector<int32_t>& ids) const {
  if (tokenizer_ == nullptr || ids.size() < 2) return false;
  const auto bos = tokenizer_->bos_id();
  return bos && ids[0] == *bos && ids[1] == *bos;
}

std::vector<EncodedRow> RowEncoder::fit(WeightedIds tokens, RowFormat format) const {
  const int32_t limit = options_.max_seq_length;
  const int64_t size = static_cast<int64_t>(tokens.ids.size());
  const bool too_long = limit > 0 && size > limit;
  Truncation how = options_.truncation;
  if (how == Truncation::kAuto)
    how = format == RowFormat::kText ? Truncation::kChunk : Truncation::kRight;

  if (too_long && how == Truncation::kError) {
    EncodedRow row = finished(std::move(tokens));
    row.drop = Drop{kTooLong, "the row has " + std::to_string(size) +
                                  " tokens, max_seq_length is " + std::to_string(limit) +
                                  ": shorten it, raise max_seq_length or allow truncation"};
    return {std::move(row)};
  }
  const auto targets =
      static_cast<int32_t>(std::ranges::count_if(tokens.weights, [](float w) { return w > 0; }));
  const bool keep_first = tokenizer_ && tokenizer_->adds_bos() && !tokens.ids.empty() &&
                          tokens.ids.front() == *tokenizer_->bos_id();
  std::vector<EncodedRow> rows;
  for (WeightedIds& part : cut(std::move(tokens), too_long ? limit : INT32_MAX, how, keep_first)) {
    rows.push_back(finished(std::move(part)));
  }
  if (too_long && how != Truncation::kChunk) {
    rows.back().truncated_tokens = static_cast<int32_t>(size - limit);
    rows.back().truncated_trainable_tokens = targets - rows.back().trainable_tokens;
  }
  if (std::ranges::none_of(rows, [](const EncodedRow& row) { return row.trainable_tokens > 0; })) {
    const std::string why =
        targets > 0
            ? "cutting the row from " + std::to_string(size) + " to " + std::to_string(limit) +
                  " tokens left nothing to train: raise max_seq_length, or use truncation RIGHT"
            : "no token of the row is trained: it needs an assistant message, completion or label "
              "of weight above 0 after its first token";
    rows.resize(1);
    rows.front().drop = Drop{kNothingToTrain, why};
    return rows;
  }
  std::erase_if(rows, [](const EncodedRow& row) { return row.trainable_tokens == 0; });
  return rows;
}

}  // namespace dex::text
