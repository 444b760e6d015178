#include "worker/train/updater.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/evaluate/supervised_batch.h"

namespace dex::train {
namespace {

constexpr uint64_t kMostPacks = 4096;  // in an update (api.md §3, batch_size)

std::vector<evaluate::Document> documents_of(std::span<const Pack> packs,
                                             const std::vector<Example>& examples) {
  std::vector<evaluate::Document> documents;
  for (const Pack& pack : packs) {
    for (const uint32_t index : pack)
      documents.push_back({examples[index].ids, examples[index].weights});
  }
  return documents;
}

double weight_of(std::span<const Pack> packs, const std::vector<Example>& examples) {
  double weight = 0;
  for (const Pack& pack : packs) {
    for (const uint32_t index : pack) weight += trainable_weight(examples[index]);
  }
  return weight;
}

}  // namespace

Updater::Updater(const model::Llama& llama, const model::Adaptation& adaptation,
                 FlatParameters& parameters, AdamW& optimizer, const Options& options)
    : llama_(llama),
      adaptation_(adaptation),
      parameters_(parameters),
      optimizer_(optimizer),
      options_(options) {}

Updater::Gradients Updater::accumulate(int64_t update, std::span<const Pack> packs,
                                       const std::vector<Example>& examples,
                                       const std::function<void()>& between) {
  Gradients out;
  parameters_.zero_gradients();
  const double weight = weight_of(packs, examples);
  const auto micro = static_cast<size_t>(options_.micro_batch_size);
  for (size_t begin = 0; begin < packs.size(); begin += micro) {
    const auto part = packs.subspan(begin, std::min(micro, packs.size() - begin));
    evaluate::SupervisedBatch batch = evaluate::supervise(documents_of(part, examples));
    // A function of the update, not of what came before: a resumed job drops the same entries.
    batch.batch.noise =
        model::Noise{options_.seed, static_cast<uint64_t>(update) * kMostPacks + begin};
    batch.batch.prefix = options_.prefix;
    const at::Tensor hidden = llama_.hidden(batch.batch, adaptation_);
    const at::Tensor loss = cross_entropy_.loss(hidden, llama_.lm_head(adaptation_), batch.targets,
                                                batch.weights.div(weight));
    loss.backward();
    out.loss += loss.item<double>();
    out.tokens += batch.tokens();
    out.labels += batch.labels;
    if (between) between();
  }
  out.norm = parameters_.gradient_norm();
  return out;
}

void Updater::apply(const Gradients& gradients, const AdamW::Rates& rates) {
  parameters_.clip(gradients.norm, options_.max_grad_norm);
  optimizer_.update(rates);
}

}  // namespace dex::train
