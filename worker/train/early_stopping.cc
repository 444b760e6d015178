#include "worker/train/early_stopping.h"

#include <cmath>

namespace dex::train {

bool EarlyStopping::take(int64_t step, double loss, bool publishable) {
  if (!options_.enabled || !publishable) return false;
  if (++state_.evaluations <= options_.warmup_evals) return false;
  // A loss that is not finite improves nothing and is compared with nothing.
  const bool finite = std::isfinite(loss);
  const bool best = finite && step > 0 && (!state_.best_loss || loss < *state_.best_loss);
  if (best) {
    state_.best_loss = loss;
    state_.best_step = step;
  }
  // The reference moves only with an improvement, so many small steps together are one as well.
  if (finite && (!state_.reference || loss < *state_.reference - options_.min_delta)) {
    state_.reference = loss;
    state_.in_row = 0;
  } else if (++state_.in_row >= options_.patience && state_.best_step > 0) {
    state_.stopped = true;
  }
  return best;
}

}  // namespace dex::train
