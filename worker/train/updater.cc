#include "worker/train/updater.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "worker/evaluate/supervised_batch.h"
#include "worker/train/rank_share.h"

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

int64_t longest_of(std::span<const Pack> packs, const std::vector<Example>& examples) {
  int64_t longest = 0;
  for (const Pack& pack : packs) {
    for (const uint32_t index : pack)
      longest = std::max(longest, static_cast<int64_t>(examples[index].ids.size()));
  }
  return longest;
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
  place_ = MemoryPlace::kForward;
  parameters_.zero_gradients();
  const double weight = weight_of(packs, examples);
  const auto micro = static_cast<size_t>(options_.micro_batch_size);
  const RankShare share =
      options_.group ? RankShare{options_.group->rank(), options_.group->ranks()} : RankShare{};
  for (size_t begin = 0; begin < packs.size(); begin += micro) {
    if (!share.has(begin / micro)) continue;
    const auto part = packs.subspan(begin, std::min(micro, packs.size() - begin));
    place_ = MemoryPlace::kForward;
    longest_row_ = longest_of(part, examples);
    evaluate::SupervisedBatch batch = evaluate::supervise(documents_of(part, examples));
    // A function of the update, not of what came before: a resumed job drops the same entries.
    batch.batch.noise =
        model::Noise{options_.seed, static_cast<uint64_t>(update) * kMostPacks + begin};
    batch.batch.prefix = options_.prefix;
    const at::Tensor hidden = llama_.hidden(batch.batch, adaptation_);
    const at::Tensor loss = cross_entropy_.loss(hidden, llama_.lm_head(adaptation_), batch.targets,
                                                batch.weights.div(weight));
    place_ = MemoryPlace::kBackward;
    loss.backward();
    out.loss += loss.item<double>();
    out.tokens += batch.tokens();
    out.labels += batch.labels;
    if (between) between();
  }
  place_ = MemoryPlace::kOptimizer;
  longest_row_ = 0;
  if (options_.group) reduce(out);
  out.norm = parameters_.gradient_norm();
  return out;
}

// Each rank's micro-batches are divided by the weight of the whole update already: sums, no means.
void Updater::reduce(Gradients& out) {
  options_.group->all_reduce(parameters_.gradients());
  const at::Tensor sums = at::tensor(
      {out.loss, static_cast<double>(out.tokens), static_cast<double>(out.labels)}, at::kDouble);
  options_.group->all_reduce(sums);
  const double* sum = sums.data_ptr<double>();
  out.loss = sum[0];
  out.tokens = static_cast<int64_t>(sum[1]);
  out.labels = static_cast<int64_t>(sum[2]);
}

void Updater::apply(const Gradients& gradients, const AdamW::Rates& rates) {
  parameters_.clip(gradients.norm, options_.max_grad_norm);
  optimizer_.update(rates);
}

}  // namespace dex::train
