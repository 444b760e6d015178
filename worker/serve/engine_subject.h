#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/evaluate/subject.h"
#include "worker/serve/engine.h"
#include "worker/serve/heads_model.h"
#include "worker/serve/text_model.h"

namespace dex::serve {

// The engine did not answer what it was asked: no fault of whoever asked.
class EngineFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A base model or an adapter of it as evaluations see it, computed by the engine: continuous
// batching, and beginnings that items share come from the KV cache. Uses the engine's step thread,
// so nobody else may run it meanwhile.
class EngineSubject final : public evaluate::Subject {
 public:
  // `engine` and `text` outlive this object; `text` has a tokenizer. `adapter` null: the base. The
  // engine's longest_timeout_ms bounds each request.
  EngineSubject(Engine& engine, const TextModel& text,
                std::shared_ptr<const ServingAdapter> adapter, std::string label,
                int32_t trained_context);
  // Every request scales λ so; `adapter` has its branch apart then, or can't be folded.
  void scale_lambda(double scale) { dex_lambda_scale_ = scale; }
  // Lets its heads be measured: `adapter` is the folder of what the engine has, empty for the base.
  void show_heads(std::shared_ptr<HeadsModel> heads, std::filesystem::path adapter);
  // `after_step` is called in the thread that computes, after each of the engine's steps and each
  // pass of a head measure: a score or an answer may take hours of them. It must not throw.
  void watch_steps(std::function<void()> after_step) { after_step_ = std::move(after_step); }
  // From now on keeps the largest activations of what it scores and generates.
  void keep_extremes() { extremes_.emplace(); }
  [[nodiscard]] const std::optional<ActivationExtremes>& extremes() const { return extremes_; }

  [[nodiscard]] const std::string& label() const override { return label_; }
  [[nodiscard]] int32_t trained_context() const override { return trained_context_; }
  [[nodiscard]] std::vector<int32_t> encode(std::string_view text) const override;
  [[nodiscard]] std::vector<int32_t> encode_chat(
      std::span<const text::Message> messages) const override;
  [[nodiscard]] std::string render_chat(std::span<const text::Message> messages) const override;
  [[nodiscard]] text::Tokenizer::Encoding encode_with_starts(std::string_view text) const override;
  [[nodiscard]] std::optional<int32_t> bos() const override;
  [[nodiscard]] bool has_chat_template() const override { return text_.chat_template != nullptr; }

  std::vector<std::vector<float>> score(std::span<const Scoring> items,
                                        const std::stop_token& stop) override;
  std::vector<Generated> generate(std::span<const Generation> items,
                                  const std::stop_token& stop) override;
  evaluate::HeadMeasures measure_heads(std::span<const int32_t> tokens,
                                       const evaluate::HeadQuestion& question,
                                       const std::stop_token& stop) override;

 private:
  class Reply;
  std::vector<std::shared_ptr<Reply>> run(std::vector<Request> requests,
                                          const std::stop_token& stop);

  Engine& engine_;
  const TextModel& text_;
  std::shared_ptr<const ServingAdapter> adapter_;
  std::string label_;
  int32_t trained_context_;
  std::optional<double> dex_lambda_scale_;
  std::shared_ptr<HeadsModel> heads_;
  std::filesystem::path adapter_folder_;
  std::function<void()> after_step_;  // may be empty
  std::optional<ActivationExtremes> extremes_;
};

}  // namespace dex::serve
