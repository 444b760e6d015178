#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "services/text/row.h"
#include "services/text/tokenizer.h"
#include "worker/evaluate/head_measures.h"

namespace dex::evaluate {

// Thrown by whatever computes when it is asked to stop; what was observed before stays.
class Stopped : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "stopped"; }
};

// What is measured: a base model, or an adapter on it. All that the tasks know of models. One
// thread; every call blocks until its answer is there. Failures are std::runtime_error.
class Subject {
 public:
  // Log-probabilities of tokens[first …], each given all before it; 1 ≤ first < tokens.size(). What
  // the items of one call have in common at their beginning is computed once.
  struct Scoring {
    std::vector<int32_t> tokens;
    int32_t first = 1;
  };
  // A greedy continuation of at most `max_tokens`, up to the end of sequence or a string of `stop`.
  struct Generation {
    std::vector<int32_t> prompt;
    int32_t max_tokens = 0;
    std::vector<std::string> stop;
    // For each token of the prompt, which part it belongs to (small numbers from 0): then the
    // attention of the prompt's last token is measured too. Empty: it is not.
    std::vector<uint8_t> parts;
  };
  struct Generated {
    std::string text;
    // By part: the share of the attention of the row that predicts the first generated token, mean
    // over layers and heads; adds to 1 (method.md §9.2). Empty: not measured.
    std::vector<double> attention;
    // Some of the weights are below 0: the shares are of their magnitudes.
    bool attention_magnitudes = false;
  };

  virtual ~Subject() = default;

  [[nodiscard]] virtual const std::string& label() const = 0;
  // Tokens that the model was trained for; it may take more (extrapolation).
  [[nodiscard]] virtual int32_t trained_context() const = 0;

  // As the model's prompts are encoded, with BOS in front where the model has it so.
  [[nodiscard]] virtual std::vector<int32_t> encode(std::string_view text) const = 0;
  // Of a chat, up to where the assistant's answer begins; refused where there is no template.
  [[nodiscard]] virtual std::vector<int32_t> encode_chat(
      std::span<const text::Message> messages) const = 0;
  // The text that encode_chat() makes ids of.
  [[nodiscard]] virtual std::string render_chat(std::span<const text::Message> messages) const = 0;
  // Without special tokens, each id with the byte where it begins; and what encode() puts in front.
  [[nodiscard]] virtual text::Tokenizer::Encoding encode_with_starts(
      std::string_view text) const = 0;
  [[nodiscard]] virtual std::optional<int32_t> bos() const = 0;
  [[nodiscard]] virtual bool has_chat_template() const = 0;

  // One list an item, natural logarithms. Throws Stopped.
  virtual std::vector<std::vector<float>> score(std::span<const Scoring> items,
                                                const std::stop_token& stop) = 0;
  // One answer an item. Throws Stopped.
  virtual std::vector<Generated> generate(std::span<const Generation> items,
                                          const std::stop_token& stop) = 0;
  // The attention heads on one document. Not every subject shows them. Throws Stopped.
  virtual HeadMeasures measure_heads(std::span<const int32_t> /*tokens*/,
                                     const HeadQuestion& /*question*/,
                                     const std::stop_token& /*stop*/) {
    throw std::runtime_error(label() + " does not show its heads");
  }
};

}  // namespace dex::evaluate
