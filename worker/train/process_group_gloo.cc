// LibTorch's own process group. Gloo is compiled into libtorch_cpu; its header files are not in the
// wheel, and those of Debian's libgloo-dev are of another version. They serve to name types only:
// nothing here reads, makes or calls an object of Gloo's own (their layouts differ), and nothing
// links libgloo. So devices are passed on as LibTorch gave them, and ProcessGroupGloo's inline
// functions that reach into a gloo::Context (setTimeout) are not used.
#define USE_C10D_GLOO  // as the wheel was built

#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#include "worker/train/failure.h"
#include "worker/train/process_group.h"

namespace dex::train {
namespace {

constexpr std::chrono::minutes kMeeting{5};
// While rank 0 evaluates, chooses heads or waits for a disk, the others wait for it. A rank that
// died ends the wait at once, one that hangs is noticed by the agent (no step); this is the rest.
constexpr std::chrono::hours kCollective{6};

std::string who(const ProcessGroup::Options& options) {
  return "rank " + std::to_string(options.rank) + " of " + std::to_string(options.ranks);
}

class GlooGroup final : public ProcessGroup {
 public:
  explicit GlooGroup(const Options& options) : ProcessGroup(options) {
    guarded("meeting", [&] {
      auto store = c10::make_intrusive<c10d::FileStore>(options.rendezvous.string(), options.ranks);
      auto gloo = c10d::ProcessGroupGloo::Options::create(kMeeting);
      gloo->threads = 1;  // calls are made one after the other
      gloo->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
      group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(store, options.rank, options.ranks,
                                                           std::move(gloo));
    });
  }

  void all_reduce(const at::Tensor& tensor) override {
    guarded("all-reduce", [&] {
      c10d::AllreduceOptions options;
      options.timeout = kCollective;
      std::vector<at::Tensor> tensors{tensor};
      group_->allreduce(tensors, options)->wait();
    });
  }

  void broadcast(const at::Tensor& tensor) override {
    guarded("broadcast", [&] {
      c10d::BroadcastOptions options;
      options.timeout = kCollective;
      std::vector<at::Tensor> tensors{tensor};
      group_->broadcast(tensors, options)->wait();
    });
  }

 private:
  void guarded(const char* what, const std::function<void()>& call) const try {
    call();
  } catch (const std::exception& error) {
    // LibTorch's own errors carry a stack trace; the first line says what happened.
    const std::string text = error.what();
    throw Failure(Exit::kRetryable, kRankLost,
                  who({rank(), ranks(), {}}) + ": " + what + ": " + text.substr(0, text.find('\n')),
                  "ranks");
  }

  c10::intrusive_ptr<c10d::Backend> group_;
};

}  // namespace

std::unique_ptr<ProcessGroup> join_process_group(const ProcessGroup::Options& options) {
  return std::make_unique<GlooGroup>(options);
}

}  // namespace dex::train
