#pragma once

#include <functional>
#include <vector>

#include "worker/evaluate/hessian.h"
#include "worker/evaluate/supervised_batch.h"
#include "worker/kernels/linear_cross_entropy.h"
#include "worker/model/llama.h"

namespace dex::evaluate {

// The dominant Hessian eigenvalue of each document's mean cross-entropy over the parameters that a
// job would train: those of `adaptation`, or K, V and O for the base (method.md §4.6).
struct LossCurvature {
  std::vector<HessianEigenvalue> documents;
  double negative_share = 0;  // of the documents whose eigenvalue is below 0
  int64_t parameters = 0;     // M
};
// How many of the documents' eigenvalues are no more than where the iteration stopped.
int64_t not_settled(const LossCurvature& curvature);

// About twenty gradients of the document for each value: minutes where training takes seconds a
// step. The weights of `llama` stay untouched; `adaptation` is worked on as a copy. Beside them
// about six vectors of M floats and one training step's activations. `between` is called after each
// gradient and may throw to stop. Throws std::runtime_error if nothing is trained or a document
// predicts nothing.
LossCurvature measure_loss_curvature(const model::Llama& llama, const model::Weights& weights,
                                     const model::Adaptation& adaptation,
                                     const std::vector<Document>& documents,
                                     kernels::LinearCrossEntropy& cross_entropy,
                                     const HessianOptions& options = {},
                                     const std::function<void()>& between = {});

}  // namespace dex::evaluate
