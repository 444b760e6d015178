#include "worker/serve/engine_subject.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "worker/kernels/paged_attention.h"
#include "worker/serve/prefix_waves.h"

namespace dex::serve {
namespace {

// Requests that the engine holds at once, well below its queue's bound.
constexpr size_t kAtOnce = 512;

template <typename T>
T checked(base::Result<T> result) {
  if (!result.ok()) throw std::runtime_error(result.status().message());
  return std::move(result).value();
}

}  // namespace

class EngineSubject::Reply final : public Listener {
 public:
  void on_delta(Delta delta) override {
    text += delta.text;
    for (const TokenLogprob& entry : delta.logprobs) {
      if (entry.logprob) logprobs.push_back(*entry.logprob);
    }
  }
  void on_done(Outcome ended) override { outcome = std::move(ended); }

  std::string text;
  std::vector<float> logprobs;
  Outcome outcome;
};

EngineSubject::EngineSubject(Engine& engine, const TextModel& text,
                             std::shared_ptr<const ServingAdapter> adapter, std::string label,
                             int32_t trained_context)
    : engine_(engine),
      text_(text),
      adapter_(std::move(adapter)),
      label_(std::move(label)),
      trained_context_(trained_context) {}

std::vector<int32_t> EngineSubject::encode(std::string_view text) const {
  return checked(text_.encode_prompt(text));
}

std::vector<int32_t> EngineSubject::encode_chat(std::span<const text::Message> messages) const {
  return checked(text_.encode_chat(messages));
}

std::string EngineSubject::render_chat(std::span<const text::Message> messages) const {
  return checked(text_.render_chat(messages));
}

text::Tokenizer::Encoding EngineSubject::encode_with_starts(std::string_view text) const {
  return checked(text_.tokenizer->encode_with_starts(text));
}

std::optional<int32_t> EngineSubject::bos() const {
  return text_.tokenizer->adds_bos() ? text_.tokenizer->bos_id() : std::nullopt;
}

std::vector<std::vector<float>> EngineSubject::score(std::span<const Scoring> items,
                                                     const std::stop_token& stop) {
  std::vector<std::vector<float>> out(items.size());
  for (const auto& wave : prefix_waves(items, static_cast<int32_t>(kernels::kBlockTokens))) {
    std::vector<Request> requests;
    for (const size_t i : wave) {
      Request& request = requests.emplace_back();
      request.prompt = items[i].tokens;
      request.max_tokens = 0;
      request.echo = true;
      request.echo_from = items[i].first;
      request.top_logprobs = 0;
    }
    auto replies = run(std::move(requests), stop);
    for (size_t i = 0; i < wave.size(); ++i) out[wave[i]] = std::move(replies[i]->logprobs);
  }
  return out;
}

std::vector<EngineSubject::Generated> EngineSubject::generate(std::span<const Generation> items,
                                                              const std::stop_token& stop) {
  std::vector<Request> requests;
  for (const Generation& item : items) {
    Request& request = requests.emplace_back();
    request.prompt = item.prompt;
    request.max_tokens = item.max_tokens;
    request.sampling.temperature = 0;
    request.stop = item.stop;
    request.attention_parts = item.parts;
  }
  std::vector<Generated> out;
  for (const auto& reply : run(std::move(requests), stop)) {
    out.push_back({std::move(reply->text), std::move(reply->outcome.attention),
                   reply->outcome.attention_magnitudes});
  }
  return out;
}

void EngineSubject::show_heads(std::shared_ptr<HeadsModel> heads, std::filesystem::path adapter) {
  heads_ = std::move(heads);
  adapter_folder_ = std::move(adapter);
}

evaluate::HeadMeasures EngineSubject::measure_heads(std::span<const int32_t> tokens,
                                                    const evaluate::HeadQuestion& question,
                                                    const std::stop_token& stop) {
  if (!heads_) return Subject::measure_heads(tokens, question, stop);
  return heads_->measure({adapter_folder_, dex_lambda_scale_.value_or(1)}, tokens, question, stop,
                         after_step_);
}

std::vector<std::shared_ptr<EngineSubject::Reply>> EngineSubject::run(std::vector<Request> requests,
                                                                      const std::stop_token& stop) {
  engine_.watch(extremes_ ? &*extremes_ : nullptr);  // the engine is shared with other subjects
  std::vector<std::shared_ptr<Reply>> replies;
  for (size_t begin = 0; begin < requests.size(); begin += kAtOnce) {
    const size_t end = std::min(begin + kAtOnce, requests.size());
    base::Status refused;
    for (size_t i = begin; i < end && refused.ok(); ++i) {
      requests[i].timeout_ms = engine_.limits().longest_timeout_ms;
      requests[i].dex_lambda_scale = dex_lambda_scale_;
      replies.push_back(std::make_shared<Reply>());
      refused = engine_.submit(i + 1, std::move(requests[i]), adapter_, replies.back());
    }
    const auto cancel_all = [&] {
      for (size_t i = begin; i < end; ++i) engine_.cancel(i + 1);
    };
    if (!refused.ok()) cancel_all();  // the next run must not meet what was taken before
    {
      // From whatever thread asks to stop; the engine ends them at its next step.
      const std::stop_callback on_stop(stop, cancel_all);
      engine_.run_until_idle(after_step_);
    }
    if (!refused.ok()) throw EngineFailure(label_ + ": " + refused.message());
    if (stop.stop_requested()) throw evaluate::Stopped();
    for (size_t i = begin; i < end; ++i) {
      const base::Status& error = replies[i]->outcome.error;
      if (!error.ok()) throw EngineFailure(label_ + ": " + error.message());
    }
  }
  return replies;
}

}  // namespace dex::serve
