#include "worker/serve/evaluation_subjects.h"

#include <limits>

#include "worker/model/config.h"

namespace dex::serve {

EvaluationSubjects::EvaluationSubjects(const Options& options, const base::Clock& clock) {
  int32_t trained = 0;
  try {
    load_base(options, clock);
    trained = static_cast<int32_t>(model::load_config(options.model).max_position_embeddings);
  } catch (const BrokenBase&) {
    throw;
  } catch (const NoTokenizer&) {
    throw;
  } catch (const std::runtime_error& error) {
    throw BrokenBase(error.what());
  }
  const auto heads = std::make_shared<HeadsModel>(options.model, options.threads);
  for (const SubjectSource& source : options.subjects) {
    subjects_.push_back(std::make_unique<EngineSubject>(*engine_, text_, load_adapter(source),
                                                        source.label, trained));
    subjects_.back()->show_heads(heads, source.adapter);
    if (source.dex_lambda_scale) subjects_.back()->scale_lambda(*source.dex_lambda_scale);
    list_.push_back(subjects_.back().get());
  }
}

void EvaluationSubjects::load_base(const Options& options, const base::Clock& clock) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(options.model, ignored)) {
    throw BrokenBase("--model: " + options.model.string() +
                     " is not a directory with a Hugging Face model");
  }
  auto text = TextModel::load(options.model);
  if (!text.ok()) throw BrokenBase(text.status().message());
  text_ = std::move(text).value();
  if (text_.tokenizer == nullptr)
    throw NoTokenizer("--model: its folder has no tokenizer.json, and evaluations read text");
  model_ = load_serving_model(options.model, parse_dtype(options.dtype), options.weights_sha256,
                              options.positions);
  // Slow machines and long contexts take their time; who is impatient stops the evaluation.
  engine_ = std::make_unique<Engine>(
      model_, text_.tokenizer.get(),
      Engine::Options{.threads = options.threads,
                      .longest_timeout_ms = std::numeric_limits<int64_t>::max() / 2},
      clock);
}

std::shared_ptr<const ServingAdapter> EvaluationSubjects::load_adapter(
    const SubjectSource& source) const {
  if (source.adapter.empty()) return nullptr;
  const TextHashes hashes = {text_.tokenizer->sha256(),
                             text_.chat_template ? text_.chat_template->sha256() : ""};
  try {
    auto adapter = load_serving_adapter(source.adapter, source.adapter.string(),
                                        source.content_sha256, *model_, hashes);
    const bool scaled = source.dex_lambda_scale.value_or(1) != 1;
    return scaled && adapter->is_folded() ? load_branch_apart(std::move(adapter), *model_)
                                          : adapter;
  } catch (const std::runtime_error& error) {
    throw BrokenAdapter(error.what());
  }
}

}  // namespace dex::serve
