#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "worker/evaluate/subject.h"
#include "worker/evaluate/task.h"

namespace dex::evaluate::testing {

// A model whose tokens are bytes, made of two functions. By default every byte is equally likely
// and every answer is empty.
class FakeSubject : public Subject {
 public:
  explicit FakeSubject(std::string label = "base", int32_t context = 1 << 16)
      : label_(std::move(label)), context_(context) {}

  // log P(text[at] | text before it)
  std::function<double(const std::string& text, size_t at)> logprob = [](const auto&, size_t) {
    return -std::log(256.0);
  };
  std::function<std::string(const std::string& prompt)> answer = [](const auto&) { return ""; };
  // Of the parts of a prompt's tokens; by default what an even attention falls on.
  std::function<std::vector<double>(const std::vector<uint8_t>& parts)> attention =
      [](const std::vector<uint8_t>& parts) {
        std::vector<double> out(1 + *std::max_element(parts.begin(), parts.end()));
        for (const uint8_t part : parts) out[part] += 1.0 / static_cast<double>(parts.size());
        return out;
      };
  bool attention_magnitudes = false;
  std::function<void()> before_each_call;  // may ask to stop
  std::optional<int32_t> bos_id;           // in front of every encoded text
  std::vector<std::string> prompts;        // that answers were made for

  [[nodiscard]] const std::string& label() const override { return label_; }
  [[nodiscard]] int32_t trained_context() const override { return context_; }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override {
    std::vector<int32_t> out;
    if (bos_id) out.push_back(*bos_id);
    for (const char c : text) out.push_back(static_cast<unsigned char>(c));
    return out;
  }
  [[nodiscard]] std::vector<int32_t> encode_chat(
      std::span<const text::Message> messages) const override {
    return encode(render_chat(messages));
  }
  [[nodiscard]] std::string render_chat(std::span<const text::Message> messages) const override {
    std::string text;
    for (const auto& message : messages) text += "<" + message.role + ">" + message.content;
    return text + "<assistant>";
  }
  [[nodiscard]] text::Tokenizer::Encoding encode_with_starts(std::string_view text) const override {
    text::Tokenizer::Encoding out;
    for (size_t i = 0; i < text.size(); ++i) {
      out.ids.push_back(static_cast<unsigned char>(text[i]));
      out.starts.push_back(static_cast<uint32_t>(i));
    }
    return out;
  }
  [[nodiscard]] std::optional<int32_t> bos() const override { return bos_id; }
  [[nodiscard]] bool has_chat_template() const override { return true; }

  std::vector<std::vector<float>> score(std::span<const Scoring> items,
                                        const std::stop_token& stop) override {
    check(stop);
    std::vector<std::vector<float>> out;
    for (const Scoring& item : items) {
      const std::string text = text_of(item.tokens);
      out.emplace_back();
      for (size_t i = static_cast<size_t>(item.first); i < item.tokens.size(); ++i)
        out.back().push_back(static_cast<float>(logprob(text, i)));
    }
    return out;
  }
  std::vector<Generated> generate(std::span<const Generation> items,
                                  const std::stop_token& stop) override {
    check(stop);
    std::vector<Generated> out;
    for (const Generation& item : items) {
      prompts.push_back(text_of(item.prompt));
      out.push_back({answer(prompts.back()), {}, false});
      if (item.parts.empty()) continue;
      out.back().attention = attention(item.parts);
      out.back().attention_magnitudes = attention_magnitudes;
    }
    return out;
  }

 private:
  void check(const std::stop_token& stop) const {
    if (before_each_call) before_each_call();
    if (stop.stop_requested()) throw Stopped();
  }
  // BOS becomes one byte, so positions stay.
  static std::string text_of(const std::vector<int32_t>& tokens) {
    std::string out;
    for (const int32_t token : tokens) out += static_cast<char>(token);
    return out;
  }

  std::string label_;
  int32_t context_;
};

inline Evaluation run(Task& task, std::vector<Subject*> subjects, const Hooks& hooks = {}) {
  return evaluate(task, subjects, {}, hooks);
}

// The row of a metric, subject and dims; throws where there is none.
inline ResultRow row_of(const Evaluation& evaluation, const std::string& metric,
                        const std::string& subject = "base", const Dims& dims = {}) {
  for (const ResultRow& row : evaluation.rows) {
    if (row.metric == metric && row.subject == subject && row.dims == dims) return row;
  }
  throw std::runtime_error("no row " + metric + " of " + subject);
}

}  // namespace dex::evaluate::testing
