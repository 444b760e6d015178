#include "tests/perf/load/unary_load.h"

#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>

#include <atomic>
#include <latch>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "dex/v1/inference.grpc.pb.h"
#include "tests/perf/load/backend.h"

namespace dex::perf {
namespace {

using Clock = std::chrono::steady_clock;
using Stub = v1::InferenceService::Stub;

v1::GenerateRequest request() {
  v1::GenerateRequest made;
  made.set_model(Backend::kModel);
  made.set_prompt(std::string(100, 'x'));
  return made;
}

// A connection of its own: channels with equal arguments share one.
std::unique_ptr<Stub> connect(const std::string& server) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return v1::InferenceService::NewStub(
      grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments));
}

void set_deadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
}

// Calls, each begun by the end of the one before, until told to stop.
class Chain {
 public:
  struct Shared {
    std::atomic<bool> stop = false;
    std::atomic<int64_t> answered = 0;
    std::mutex mutex;
    std::string failure;  // guarded by mutex
    std::latch ended;
    explicit Shared(int chains) : ended(chains) {}
  };
  Chain(Stub& stub, Shared& shared) : stub_(stub), shared_(shared) {}
  void next() {
    if (shared_.stop) return shared_.ended.count_down();
    context_ = std::make_unique<grpc::ClientContext>();
    set_deadline(*context_);
    stub_.async()->Generate(context_.get(), &request_, &reply_, [this](const grpc::Status& status) {
      if (status.ok()) {
        ++shared_.answered;
      } else {
        const std::lock_guard lock(shared_.mutex);
        shared_.failure = status.error_message();
        shared_.stop = true;
      }
      next();
    });
  }

 private:
  Stub& stub_;
  Shared& shared_;
  const v1::GenerateRequest request_ = request();
  v1::GenerateResponse reply_;
  std::unique_ptr<grpc::ClientContext> context_;
};

}  // namespace

std::vector<double> latencies(const std::string& server, int calls) {
  const auto stub = connect(server);
  const auto in = request();
  constexpr int kWarm = 50;
  std::vector<double> found;
  found.reserve(static_cast<size_t>(calls));
  for (int i = -kWarm; i < calls; ++i) {
    grpc::ClientContext context;
    set_deadline(context);
    v1::GenerateResponse reply;
    const auto began = Clock::now();
    const auto status = stub->Generate(&context, in, &reply);
    const std::chrono::duration<double, std::micro> took = Clock::now() - began;
    if (!status.ok()) throw std::runtime_error("Generate: " + status.error_message());
    if (i >= 0) found.push_back(took.count());
  }
  return found;
}

double rate(const std::string& server, int in_flight, int connections,
            std::chrono::milliseconds time) {
  std::vector<std::unique_ptr<Stub>> stubs;
  for (int i = 0; i < connections; ++i) stubs.push_back(connect(server));
  Chain::Shared shared(in_flight);
  std::vector<std::unique_ptr<Chain>> chains;
  for (int i = 0; i < in_flight; ++i)
    chains.push_back(std::make_unique<Chain>(*stubs[static_cast<size_t>(i % connections)], shared));
  for (const auto& chain : chains) chain->next();
  std::this_thread::sleep_for(time / 5);  // connections are up and threads are there
  const int64_t before = shared.answered;
  const auto began = Clock::now();
  std::this_thread::sleep_for(time);
  const int64_t answered = shared.answered - before;
  const std::chrono::duration<double> took = Clock::now() - began;
  shared.stop = true;
  shared.ended.wait();
  const std::lock_guard lock(shared.mutex);
  if (!shared.failure.empty()) throw std::runtime_error("Generate: " + shared.failure);
  return static_cast<double>(answered) / took.count();
}

}  // namespace dex::perf
