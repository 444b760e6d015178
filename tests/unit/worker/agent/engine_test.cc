// Engines that are real processes, called through the inference door on loopback.

#include "worker/agent/engine.h"

#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <thread>

#include "dex/v1/inference.grpc.pb.h"
#include "services/rpc/channel.h"
#include "services/rpc/headers.h"
#include "services/rpc/server.h"
#include "services/rpc/status.h"
#include "tests/support/eventually.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"
#include "worker/agent/engine_set.h"
#include "worker/agent/inference_service.h"

namespace dex::agent {
namespace {

using dex::v1::GenerateRequest;
using dex::v1::GenerateResponse;
using dex::v1::GenerateStreamResponse;
using std::chrono::milliseconds;
using support::eventually;

class EngineTest : public testing::Test {
 protected:
  EngineTest()
      : registry_("worker", "0", "0"),
        worker_metrics_(registry_),
        metrics_(registry_),
        paths_(directory_.path()),
        engines_(paths_, metrics_),
        room_(rpc::Room::Options{}),
        service_(room_, engines_, paths_, ids_) {
    Engine::Options options;
    options.program = support::build_dir() / "tests/dex-fake-engine";
    options.model.name = "tiny";
    options.dtype = "int8";
    options.first_backoff_ms = 10;
    options.last_backoff_ms = 50;
    engines_.add(std::make_unique<Engine>(options, clock_, worker_metrics_, metrics_));
    engines_.start();
    registry_.before_scrape([this] { engines_.export_load(); });
    rpc::Server::Options server;
    server.services = {{dex::v1::InferenceService::service_full_name(), &service_}};
    server_ = std::move(rpc::Server::start(server, room_, registry_)).value();
    stub_ = dex::v1::InferenceService::NewStub(rpc::channel(server_->address()));
    EXPECT_TRUE(eventually([this] { return engines_.any_serving(); }));
  }
  ~EngineTest() override {
    server_->stop(milliseconds(500));
    engines_.stop();
  }

  // Looks again and again: the state of another process has no condition variable.
  static GenerateRequest request(const std::string& prompt, const std::string& model = "tiny") {
    GenerateRequest request;
    request.set_model(model);
    request.set_prompt(prompt);
    return request;
  }
  base::Result<GenerateResponse> generate(const GenerateRequest& request,
                                          const std::string& path = "") {
    grpc::ClientContext context;
    rpc::set_timeout(context, milliseconds(30'000));
    if (!path.empty()) {
      context.AddMetadata(rpc::kRoutedBaseHeader, "tiny");
      context.AddMetadata(rpc::kRoutedAdapterHeader, request.model());
      context.AddMetadata(rpc::kRoutedAdapterHashHeader, "hash");
      context.AddMetadata(rpc::kRoutedAdapterPathHeader, path);
    }
    GenerateResponse response;
    const auto status = stub_->Generate(&context, request, &response);
    if (!status.ok()) return rpc::from_grpc(status);
    return response;
  }
  size_t open_requests() { return engines_.find("tiny")->open_requests(); }
  bool exported(const std::string& line) {
    return registry_.text().find(line) != std::string::npos;
  }

  support::TemporaryDirectory directory_;
  base::SystemClock clock_;
  base::SeededRandom random_{1};
  base::UlidGenerator ids_{clock_, random_};
  monitor::Registry registry_;
  WorkerMetrics worker_metrics_;
  InferenceMetrics metrics_;
  DataPaths paths_;
  EngineSet engines_;
  rpc::Room room_;
  InferenceService service_;
  std::unique_ptr<rpc::Server> server_;
  std::unique_ptr<dex::v1::InferenceService::Stub> stub_;
};

TEST_F(EngineTest, AUnaryAnswerIsTheWholeStream) {
  const auto reply = generate(request("count 5"));
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->text(), "0 1 2 3 4 ");
  EXPECT_EQ(reply->token_ids_size(), 5);
  EXPECT_EQ(reply->model(), "base");
  EXPECT_EQ(reply->finish_reason(), dex::v1::FINISH_REASON_STOP);
  EXPECT_EQ(reply->usage().completion_tokens(), 5);
  EXPECT_TRUE(reply->id().starts_with("gen-")) << reply->id();
  EXPECT_TRUE(exported("dex_infer_requests_total{finished_reason=\"stop\"} 1"));
  EXPECT_TRUE(exported("dex_infer_generation_tokens_total 5"));
  EXPECT_TRUE(exported("dex_infer_kv_cache_usage_ratio 0.25"));
}

TEST_F(EngineTest, AStreamHasStartDeltasAndFinish) {
  grpc::ClientContext context;
  rpc::set_timeout(context, milliseconds(30'000));
  auto reader = stub_->GenerateStream(&context, request("count 3"));
  std::string kinds;
  GenerateStreamResponse event;
  while (reader->Read(&event)) {
    kinds += event.has_start() ? 's' : event.has_delta() ? 'd' : 'f';
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(kinds, "sdddf");
}

TEST_F(EngineTest, TheEnginesErrorReachesTheClientWithItsReason) {
  const auto reply = generate(request("long"));
  EXPECT_EQ(reply.status().code(), base::Code::kInvalidArgument);
  EXPECT_EQ(reply.status().reason(), "CONTEXT_LENGTH_EXCEEDED");
}

TEST_F(EngineTest, ServesInTheTypeThatItIsToldAndSaysSo) {
  const auto status = engines_.status();
  ASSERT_EQ(status.size(), 1u);
  EXPECT_EQ(status[0].dtype(), "int8");
}

TEST_F(EngineTest, AnotherModelIsRefused) {
  EXPECT_EQ(generate(request("x", "other")).status().reason(), "NO_WORKER");
}

TEST_F(EngineTest, AClientThatGoesAwayFreesItsPlace) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request("forever"));
  GenerateStreamResponse event;
  ASSERT_TRUE(reader->Read(&event));
  ASSERT_TRUE(reader->Read(&event));
  EXPECT_EQ(open_requests(), 1u);
  context.TryCancel();
  EXPECT_EQ(reader->Finish().error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_TRUE(eventually([this] { return open_requests() == 0; }));
  EXPECT_TRUE(exported("dex_infer_requests_total{finished_reason=\"cancelled\"} 1"));
}

TEST_F(EngineTest, ADeadlineFreesThePlaceToo) {
  auto limited = request("forever");
  limited.set_timeout_seconds(0.1);
  EXPECT_EQ(generate(limited).status().code(), base::Code::kDeadlineExceeded);
  EXPECT_TRUE(eventually([this] { return open_requests() == 0; }));
}

// P20: all in flight fail within a second, the engine comes back.
TEST_F(EngineTest, ADeadEngineFailsItsRequestsAndIsStartedAgain) {
  constexpr int kStreams = 32;
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<GenerateStreamResponse>>> readers;
  GenerateStreamResponse event;
  for (int i = 0; i < kStreams; ++i) {
    contexts.push_back(std::make_unique<grpc::ClientContext>());
    readers.push_back(stub_->GenerateStream(contexts.back().get(), request("forever")));
    ASSERT_TRUE(readers.back()->Read(&event));
  }
  const auto before = std::chrono::steady_clock::now();
  EXPECT_EQ(generate(request("die")).status().reason(), "ENGINE_LOST");
  for (auto& reader : readers) {
    while (reader->Read(&event)) {
    }
    EXPECT_EQ(rpc::from_grpc(reader->Finish()).reason(), "ENGINE_LOST");
  }
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(5))
      << "one second on a quiet machine";
  EXPECT_TRUE(eventually([this] { return engines_.any_serving(); }));
  EXPECT_TRUE(generate(request("hello")).ok());
  EXPECT_TRUE(exported("dex_engine_restarts_total 1"));
}

TEST_F(EngineTest, AnAdapterIsLoadedOnFirstUseFromBelowTheDataDirectoryOnly) {
  const std::string id = "ft:tiny:default::x";
  EXPECT_EQ(generate(request("hi", id)).status().reason(), "ADAPTER_LOADING") << "no path";
  EXPECT_EQ(generate(request("hi", id), "../outside").status().reason(), "PATH_NOT_ALLOWED");
  const auto reply = generate(request("hi", id), "jobs/x/final");
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->model(), id);
  EXPECT_TRUE(exported("dex_infer_adapters_loaded{tier=\"device\"} 1"));
  EXPECT_TRUE(generate(request("hi", id)).ok()) << "now it is known";
  EXPECT_EQ(generate(request("hi", "ft:tiny:default::y"), "jobs/broken").status().reason(),
            "ADAPTER_MISMATCH");
  EXPECT_TRUE(exported("dex_infer_adapter_load_failures_total 1"));
}

TEST_F(EngineTest, RoutersSeeWhichAdaptersRequestsAreFor) {
  EXPECT_TRUE(
      exported("vllm:lora_requests_info{max_lora=\"32\",running_lora_adapters=\"\","
               "waiting_lora_adapters=\"\"} "));
  const std::string id = "ft:tiny:default::x";
  ASSERT_TRUE(generate(request("hi", id), "jobs/x/final").ok());
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request("forever", id));
  GenerateStreamResponse event;
  ASSERT_TRUE(reader->Read(&event));
  ASSERT_TRUE(reader->Read(&event)) << "its first token";
  EXPECT_TRUE(exported("running_lora_adapters=\"" + id + "\""));
  context.TryCancel();
  EXPECT_TRUE(eventually([&] { return exported("running_lora_adapters=\"\""); }));
}

TEST_F(EngineTest, TheSchedulersListSurvivesARestart) {
  google::protobuf::RepeatedPtrField<iv1::DesiredAdapter> desired;
  auto& adapter = *desired.Add();
  adapter.set_id("ft:tiny:default::z");
  adapter.set_base("tiny");
  adapter.set_path("jobs/z/final");
  engines_.set_desired(desired);
  const auto loaded = [this] {
    const auto status = engines_.status();
    return status[0].state() == iv1::EngineStatus::STATE_SERVING &&
           status[0].adapters_size() == 1 &&
           status[0].adapters(0).state() == dex::v1::Replica::STATE_LOADED;
  };
  EXPECT_TRUE(eventually(loaded));
  (void)generate(request("die"));
  EXPECT_TRUE(eventually(loaded));
}

TEST_F(EngineTest, ATextIsTokenisedByTheEngineAndItsErrorsComeBack) {
  const auto tokenize = [&](const std::string& text) -> base::Result<dex::v1::TokenizeResponse> {
    grpc::ClientContext context;
    rpc::set_timeout(context, milliseconds(30'000));
    dex::v1::TokenizeRequest request;
    request.set_model("tiny");
    request.set_text(text);
    dex::v1::TokenizeResponse response;
    const auto status = stub_->Tokenize(&context, request, &response);
    if (!status.ok()) return rpc::from_grpc(status);
    return response;
  };
  const auto ids = tokenize("ab");
  ASSERT_TRUE(ids.ok()) << ids.status().to_string();
  ASSERT_EQ(ids->ids_size(), 2);
  EXPECT_EQ(ids->ids(1), 'b');
  const auto refused = tokenize("").status();
  EXPECT_EQ(refused.reason(), "MISSING_FIELD");
  EXPECT_EQ(refused.violations().at(0).field, "text");
  // As long as gRPC takes; with what the agent adds it fits no frame to the engine, which lives on.
  EXPECT_EQ(tokenize(std::string((4 << 20) - 14, 'a')).status().reason(),
            "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_TRUE(tokenize("c").ok());
  EXPECT_EQ(tokenize("die").status().reason(), "ENGINE_LOST") << "nobody waits for a dead engine";
  EXPECT_TRUE(eventually([&] { return tokenize("c").ok(); }));
}

TEST_F(EngineTest, DrainRefusesNewRequestsAndLetsOpenOnesEnd) {
  grpc::ClientContext context;
  auto reader = stub_->GenerateStream(&context, request("forever"));
  GenerateStreamResponse event;
  ASSERT_TRUE(reader->Read(&event));
  std::jthread drain([this] { engines_.drain(20'000); });
  EXPECT_TRUE(
      eventually([this] { return generate(request("x")).status().reason() == "SERVER_DRAINING"; }));
  EXPECT_TRUE(reader->Read(&event)) << "the open stream goes on";
  context.TryCancel();
}

// A worker with nothing else to serve ends on this (agent.cc).
TEST_F(EngineTest, AModelThatCannotBeLoadedIsKnownAsBroken) {
  EXPECT_FALSE(engines_.all_broken()) << "this one serves";
  Engine::Options options;
  options.program = support::build_dir() / "tests/dex-fake-engine";
  options.model.name = "torn";
  options.model.folder = "/models/broken";
  options.first_backoff_ms = 10;
  EngineSet broken(paths_, metrics_);
  broken.add(std::make_unique<Engine>(options, clock_, worker_metrics_, metrics_));
  EXPECT_FALSE(broken.all_broken()) << "not before it was tried";
  broken.start();
  EXPECT_TRUE(eventually([&] { return broken.all_broken(); }));
  EXPECT_FALSE(broken.any_serving());
  broken.stop();
}

}  // namespace
}  // namespace dex::agent
