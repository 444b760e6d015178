#include "worker/serve/heads_model.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/evaluate/head_scores.h"
#include "worker/evaluate/head_structure.h"
#include "worker/evaluate/loss_curvature.h"
#include "worker/evaluate/subject.h"
#include "worker/model/adapter.h"
#include "worker/model/weights.h"

namespace dex::serve {
namespace {

// LibTorch's pool for as long as it computes; the engine leaves it one thread
// (use_one_library_thread).
class LibraryThreads {
 public:
  explicit LibraryThreads(int threads) : before_(at::get_num_threads()) {
    const auto all = static_cast<int>(std::thread::hardware_concurrency());
    at::set_num_threads(threads > 0 ? threads : std::max(1, all));
  }
  ~LibraryThreads() { at::set_num_threads(before_); }
  LibraryThreads(const LibraryThreads&) = delete;
  LibraryThreads& operator=(const LibraryThreads&) = delete;

 private:
  int before_;
};

void fill_removed(const evaluate::RemovedTable& removed, evaluate::HeadMeasures& out) {
  out.removed_by_layer = removed.by_layer;
  constexpr double kNoBranch = std::numeric_limits<double>::quiet_NaN();
  for (const auto& layer : removed.layers) {
    auto &zero = out.removed_below_zero.emplace_back(),
         &half = out.removed_below_half.emplace_back();
    for (const auto& head : layer) {
      zero.push_back(head ? static_cast<double>(head->below_zero) : kNoBranch);
      half.push_back(head ? static_cast<double>(head->below_half) : kNoBranch);
    }
  }
}

}  // namespace

struct HeadsModel::Loaded {
  explicit Loaded(const std::filesystem::path& folder)
      : config(model::load_config(folder)),
        weights(
            model::load_weights(folder, config, {.dtype = at::kFloat, .refuse_non_finite = true})),
        llama(config, weights),
        weights_sha256(model::base_weights_sha256(folder)) {}

  const model::Adaptation& adaptation(const Whose& whose) {
    static const model::Adaptation kBase{};
    if (whose.adapter.empty()) return kBase;
    const auto known = adapters.find(whose);
    if (known != adapters.end()) return known->second;
    auto read = model::load_adapter(whose.adapter, {config, weights_sha256});
    for (auto& layer : read.adaptation.layers) {
      layer.lambda.fixed *= whose.lambda_scale;
      layer.lambda.learned *= whose.lambda_scale;
    }
    return adapters.emplace(whose, std::move(read.adaptation)).first->second;
  }

  model::Config config;
  model::Weights weights;
  model::Llama llama;
  std::string weights_sha256;
  std::map<Whose, model::Adaptation> adapters;
  kernels::LinearCrossEntropy cross_entropy;
};

HeadsModel::HeadsModel(std::filesystem::path model, int threads)
    : model_(std::move(model)), threads_(threads) {}
HeadsModel::~HeadsModel() = default;

HeadsModel::Loaded& HeadsModel::loaded() {
  if (!loaded_) loaded_ = std::make_unique<Loaded>(model_);
  return *loaded_;
}

evaluate::HeadMeasures HeadsModel::measure(const Whose& whose, std::span<const int32_t> tokens,
                                           const evaluate::HeadQuestion& question,
                                           const std::stop_token& stop,
                                           const std::function<void()>& after_pass) {
  const LibraryThreads threads(threads_);
  Loaded& with = loaded();
  const model::Adaptation& adaptation = with.adaptation(whose);
  const std::vector<float> ones(tokens.size(), 1.0F);
  const std::vector<evaluate::Document> documents = {{tokens, ones}};
  const auto between = [&] {
    if (stop.stop_requested()) throw evaluate::Stopped();
    if (after_pass) after_pass();
  };
  between();
  evaluate::HeadMeasures out;
  if (question.entropy || question.importance) {
    evaluate::HeadScoreOptions options;
    options.skip_rows = question.skip_rows;
    options.entropy = question.entropy;
    options.signed_entropy = true;
    options.importance = question.importance;
    auto scores = evaluate::measure_heads(with.llama, adaptation, documents, options,
                                          with.cross_entropy, between);
    out.entropy = std::move(question.normalized ? scores.entropy_normalized : scores.entropy_nats);
    out.entropy_of_magnitudes = scores.entropy_of_magnitudes;
    out.importance = std::move(scores.importance);
  }
  if (question.cosine || question.cka || question.sparsity) {
    evaluate::HeadStructureOptions options;
    options.cosine = question.cosine;
    options.cka = question.cka;
    options.sparsity = question.sparsity;
    options.skip_rows = question.skip_rows;
    auto structure =
        evaluate::measure_head_structure(with.llama, adaptation, documents, options, between);
    if (structure.cosine) out.cosine = std::move(structure.cosine->pairs);
    if (structure.cka) {
      out.positions_per_dimension = structure.cka->positions_per_dimension;
      out.cka = std::move(structure.cka->unbiased_pairs);
    }
    if (structure.sparsity) {
      out.sparsity = std::move(structure.sparsity->sparsity);
      out.negative_share = std::move(structure.sparsity->negative_share);
      out.negative_mass = std::move(structure.sparsity->negative_mass);
    }
    if (structure.removed) fill_removed(*structure.removed, out);
  }
  if (question.hessian) {
    const evaluate::HessianEigenvalue found =
        evaluate::measure_loss_curvature(with.llama, with.weights, adaptation, documents,
                                         with.cross_entropy, {}, between)
            .documents.at(0);
    out.hessian = found.value;
    out.hessian_settled = found.converged;
  }
  return out;
}

}  // namespace dex::serve
