#include "worker/serve/adapter_proof.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <fstream>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

namespace dex::serve {

namespace {

constexpr int32_t kProofTokens = 24;
constexpr int64_t kPatience_ms = 60'000;
// Agents number their requests from 1.
constexpr uint64_t kFirstHandle = uint64_t{1} << 63;
constexpr uint64_t kMostHeaderBytes = uint64_t{64} << 20;

[[noreturn]] void fail(const std::string& why) {
  throw std::runtime_error("[adapter_proof] " + why);
}

// Of a safetensors file that has been loaded, so its header is right.
int64_t count_tensors(const std::filesystem::path& file) {
  std::ifstream in(file, std::ios::binary);
  unsigned char length[8] = {};
  in.read(reinterpret_cast<char*>(length), sizeof length);
  uint64_t bytes = 0;
  for (int i = 7; i >= 0; --i) bytes = bytes << 8 | length[i];
  if (!in || bytes > kMostHeaderBytes) fail(file.filename().string() + " can't be read again");
  std::string header(bytes, '\0');
  in.read(header.data(), static_cast<std::streamsize>(bytes));
  const auto keys = nlohmann::json::parse(header, nullptr, /*allow_exceptions=*/false);
  if (!in || !keys.is_object()) fail(file.filename().string() + " can't be read again");
  return static_cast<int64_t>(keys.size()) - (keys.contains("__metadata__") ? 1 : 0);
}

}  // namespace

class AdapterProver::Reply final : public Listener {
 public:
  void on_delta(Delta delta) override {
    const std::lock_guard lock(mutex_);
    for (const TokenLogprob& entry : delta.logprobs) {
      if (entry.logprob) logprobs_.push_back(*entry.logprob);
    }
  }
  void on_done(Outcome outcome) override {
    const std::lock_guard lock(mutex_);
    error_ = std::move(outcome.error);
    done_ = true;
    changed_.notify_all();
  }
  // False: `stop` fired first.
  bool wait(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    return changed_.wait(lock, stop, [this] { return done_; });
  }
  // After wait().
  [[nodiscard]] const base::Status& error() const { return error_; }
  std::vector<float> take() { return std::move(logprobs_); }

 private:
  std::mutex mutex_;  // guards all below until done_
  std::condition_variable_any changed_;
  std::vector<float> logprobs_;
  base::Status error_;
  bool done_ = false;
};

AdapterProver::AdapterProver(Engine& engine) : engine_(engine), next_handle_(kFirstHandle) {
  const RequestLimits limits = engine_.limits();
  const int32_t tokens = std::min(kProofTokens, limits.context_tokens);
  for (int64_t i = 0; i < tokens; ++i)
    probe_.push_back(
        static_cast<int32_t>((i * limits.vocab_size / tokens + i) % limits.vocab_size));
}

std::vector<float> AdapterProver::score(std::shared_ptr<const ServingAdapter> adapter,
                                        const std::stop_token& stop) {
  Request request;
  request.prompt = probe_;
  request.max_tokens = 0;
  request.echo = true;
  request.top_logprobs = 0;
  request.timeout_ms = kPatience_ms;
  const uint64_t handle = next_handle_++;
  const auto reply = std::make_shared<Reply>();
  const base::Status taken = engine_.submit(handle, std::move(request), std::move(adapter), reply);
  if (taken.code() == base::Code::kResourceExhausted) throw Unproven(taken.message());
  if (!taken.ok()) fail("the engine takes no probe: " + taken.message());
  if (!reply->wait(stop)) {
    engine_.cancel(handle);
    fail("the engine stops");
  }
  if (reply->error().code() == base::Code::kDeadlineExceeded)
    throw Unproven(reply->error().message());
  if (!reply->error().ok()) fail("the engine answers no probe: " + reply->error().message());
  auto logprobs = reply->take();
  for (size_t i = 0; i < logprobs.size(); ++i) {
    if (!std::isfinite(logprobs[i]))
      fail("the log-probability of probe token " + std::to_string(i + 1) + " is no number");
  }
  return logprobs;
}

AdapterProof AdapterProver::prove(std::shared_ptr<const ServingAdapter> adapter,
                                  const std::filesystem::path& folder,
                                  const std::stop_token& stop) {
  if (!base_) base_ = score(nullptr, stop);
  const auto with = score(std::move(adapter), stop);
  if (with.size() != base_->size()) {
    fail("the probe has " + std::to_string(base_->size()) + " log-probabilities of the base and " +
         std::to_string(with.size()) + " of the adapter");
  }
  AdapterProof proof;
  proof.tensors = count_tensors(folder / "adapter_model.safetensors");
  proof.probe_tokens = static_cast<int32_t>(with.size());
  for (size_t i = 0; i < with.size(); ++i) {
    const double change = std::abs(static_cast<double>(with[i]) - (*base_)[i]);
    proof.max_logprob_change = std::max(proof.max_logprob_change, change);
  }
  return proof;
}

}  // namespace dex::serve
