#include "worker/evaluate/supervised_batch.h"

#include <ATen/ATen.h>

namespace dex::evaluate {

SupervisedBatch supervise(const std::vector<Document>& documents) {
  std::vector<std::vector<int64_t>> ids;
  std::vector<int64_t> targets;
  std::vector<float> weights;
  SupervisedBatch out;
  for (const Document& document : documents) {
    ids.emplace_back(document.ids.begin(), document.ids.end());
    const size_t length = document.ids.size();
    for (size_t i = 0; i < length; ++i) {
      const float weight = i + 1 < length ? document.weights[i + 1] : 0.0f;
      targets.push_back(weight > 0 ? document.ids[i + 1] : -1);
      weights.push_back(weight);
      out.weight += weight;
      out.labels += weight > 0;
    }
  }
  out.batch = model::pack(ids);
  out.targets = at::tensor(targets, at::kLong);
  out.weights = at::tensor(weights, at::kFloat);
  return out;
}

std::vector<SupervisedBatch> supervise_in_batches(const std::vector<Document>& documents,
                                                  int64_t max_tokens) {
  std::vector<SupervisedBatch> batches;
  std::vector<Document> open;
  int64_t tokens = 0;
  const auto close = [&] {
    if (!open.empty()) batches.push_back(supervise(open));
    open.clear();
    tokens = 0;
  };
  for (const Document& document : documents) {
    const auto length = static_cast<int64_t>(document.ids.size());
    if (tokens + length > max_tokens) close();
    open.push_back(document);
    tokens += length;
  }
  close();
  return batches;
}

}  // namespace dex::evaluate
