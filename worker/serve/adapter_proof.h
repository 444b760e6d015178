#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <vector>

#include "worker/serve/engine.h"

namespace dex::serve {

// That an adapter acts, as the load reply says it (api.md §6).
struct AdapterProof {
  // Of its file. Loading is strict, so each of them has its place in the base and none is missing.
  int64_t tensors = 0;
  int32_t probe_tokens = 0;  // whose log-probabilities were compared
  // The largest |Δ| of one of them between adapter and base, in nats.
  double max_logprob_change = 0;

  // Up to 1e-6 is what the order of a sum may change.
  [[nodiscard]] bool acts() const { return max_logprob_change > 1e-6; }
};

// The engine was too busy to say: nothing is known of the adapter.
class Unproven : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Asks the engine for a fixed probe, once of the base and of each adapter: a prompt of ids spread
// over the vocabulary, in the same batches as everybody's requests, so that nobody waits for a
// proof. One thread calls it, not the step thread.
class AdapterProver {
 public:
  explicit AdapterProver(Engine& engine);  // outlives this object

  // Of an adapter that was loaded from `folder` and that no request can name yet. Waits for the
  // engine. Throws "[adapter_proof] …" for a log-probability that is no number, when the engine
  // takes or answers no request, and when `stop` fires; Unproven where that is for its load alone:
  // its queue is full, or a minute brought no answer.
  AdapterProof prove(std::shared_ptr<const ServingAdapter> adapter,
                     const std::filesystem::path& folder, const std::stop_token& stop);

 private:
  class Reply;
  std::vector<float> score(std::shared_ptr<const ServingAdapter> adapter,
                           const std::stop_token& stop);

  Engine& engine_;
  std::vector<int32_t> probe_;
  std::optional<std::vector<float>> base_;  // its log-probabilities; nothing: not asked yet
  uint64_t next_handle_;
};

}  // namespace dex::serve
