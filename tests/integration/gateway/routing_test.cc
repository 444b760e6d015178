#include <future>
#include <map>
#include <optional>
#include <thread>

#include "tests/integration/gateway/gateway_fixture.h"

// Generations through a gateway: which worker answers, and what happens when one goes away.
namespace dex::gateway {
namespace {

using rpc::Event;
using std::chrono::seconds;
using std::chrono::steady_clock;

// Not answered: the call has reached the gateway and waits there, or is still on its way. Either is
// right for what follows.
template <typename Future>
bool waits(const Future& call) {
  return call.wait_for(std::chrono::milliseconds(100)) == std::future_status::timeout;
}

class RoutingTest : public GatewayTest {
 protected:
  struct Tokens {
    grpc::ClientContext context;
    std::unique_ptr<grpc::ClientReader<v1::GenerateStreamResponse>> reader;
    // "start:<id>", the text of a delta, "finish", or "" at the end.
    std::string next() {
      v1::GenerateStreamResponse message;
      if (!reader->Read(&message)) return "";
      if (message.has_start()) return "start:" + message.start().id();
      return message.has_delta() ? message.delta().text() : "finish";
    }
    base::Status finish() { return rpc::from_grpc(reader->Finish()); }
  };
  std::unique_ptr<Tokens> stream(const std::string& model = "smol") {
    auto made = std::make_unique<Tokens>();
    limit(made->context);
    v1::GenerateRequest request;
    request.set_model(model);
    request.set_prompt("x");
    made->reader = inference_->GenerateStream(&made->context, request);
    return made;
  }

  FakeWorker a_{"a"};
  FakeWorker b_{"b"};
};

TEST_F(RoutingTest, ASnapshotInPagesIsTakenWhole) {
  auto first = routes_to({&a_});
  add_adapter(first, "ft:smol:default:x:1");
  first.set_more(true);
  scheduler_->set_routes(first);
  internal::v1::RouteSnapshot last;
  add_adapter(last, "ft:smol:default:x:2");
  route(last);
  for (const char* id : {"ft:smol:default:x:1", "ft:smol:default:x:2"}) {
    const auto reply = generate("smol", id);
    ASSERT_TRUE(reply.ok()) << id << ": " << reply.status().to_string();
    EXPECT_EQ(reply.value().adapter().id(), id);
  }
  // And the next one begins anew.
  route(routes_to({&a_}));
  EXPECT_EQ(generate("smol", "ft:smol:default:x:1").status().reason(), "MODEL_NOT_FOUND");
}

TEST_F(RoutingTest, TheWorkerLearnsWhatItShallAnswerWith) {
  auto routes = routes_to({&a_});
  add_adapter(routes, "ft:smol:default:x:1");
  route(routes);
  const auto base = generate("smol");
  ASSERT_TRUE(base.ok()) << base.status().to_string();
  EXPECT_EQ(base.value().model(), "smol");
  EXPECT_EQ(base.value().adapter().id(), "-");
  const auto adapter = generate("smol", "ft:smol:default:x:1");
  ASSERT_TRUE(adapter.ok());
  EXPECT_EQ(adapter.value().adapter().id(), "ft:smol:default:x:1");
  EXPECT_EQ(adapter.value().adapter().content_sha256(), "hash of ft:smol:default:x:1");
}

// One answer is of one adapter, whatever the alias points to meanwhile.
TEST_F(RoutingTest, AnAliasMovesWithItsRoutesAndAnOpenStreamStays) {
  std::promise<void> moved;
  std::shared_future<void> after = moved.get_future().share();
  a_.stream = [&](FakeWorker::Stream out) {
    const std::string id = out->call().header("dex-routed-adapter").value_or("-");
    const std::string alias = out->call().header("dex-routed-alias").value_or("-");
    out->push(started(id));
    out->push(delta(alias));
    if (id == "ft:smol:default:x:1") after.wait_for(seconds(20));
    out->push(delta(id));
    out->push(finished());
    out->finish({});
  };
  const auto routes_with = [&](const std::string& target) {
    auto routes = routes_to({&a_});
    add_adapter(routes, "ft:smol:default:x:1");
    add_adapter(routes, "ft:smol:default:x:2");
    auto* alias = routes.add_aliases();
    alias->set_name("live");
    *alias->mutable_adapter() = routes.adapters(target == "ft:smol:default:x:1" ? 0 : 1);
    return routes;
  };
  route(routes_with("ft:smol:default:x:1"));
  const auto old = stream("live");
  EXPECT_EQ(old->next(), "start:ft:smol:default:x:1");
  EXPECT_EQ(old->next(), "live") << "the worker is told the alias, for its reply";
  route(routes_with("ft:smol:default:x:2"));
  EXPECT_EQ(generate("live").value().adapter().id(), "ft:smol:default:x:2");
  EXPECT_EQ(stream("live")->next(), "start:ft:smol:default:x:2");
  moved.set_value();
  EXPECT_EQ(old->next(), "ft:smol:default:x:1");
  EXPECT_EQ(old->next(), "finish");
  // And goes with them: never to the base.
  route(routes_to({&a_}));
  EXPECT_EQ(generate("smol", "live").status().reason(), "MODEL_NOT_FOUND");
}

TEST_F(RoutingTest, AScaleOfLambdaTravelsThere) {
  std::optional<double> asked;
  a_.generate = [&](rpc::Call&, const v1::GenerateRequest& request) {
    if (request.has_dex_lambda_scale()) asked = request.dex_lambda_scale();
    v1::GenerateResponse reply;
    reply.mutable_adapter()->set_dex_lambda_scale(request.dex_lambda_scale());
    return base::Result<v1::GenerateResponse>(std::move(reply));
  };
  auto routes = routes_to({&a_});
  add_adapter(routes, "ft:smol:default:x:1");
  route(routes);
  v1::GenerateRequest request;
  request.set_model("ft:smol:default:x:1");
  request.set_prompt("x");
  request.set_dex_lambda_scale(0);  // is not the same as none
  grpc::ClientContext context;
  limit(context);
  v1::GenerateResponse reply;
  const auto status = inference_->Generate(&context, request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
  EXPECT_EQ(asked, 0.0);
  EXPECT_TRUE(reply.adapter().has_dex_lambda_scale());
}

TEST_F(RoutingTest, AMissingAdapterIsNeverAnsweredByTheBase) {
  std::atomic<int> asked{0};
  a_.generate = [&](rpc::Call&, const v1::GenerateRequest&) {
    ++asked;
    return base::Result<v1::GenerateResponse>(v1::GenerateResponse());
  };
  route(routes_to({&a_}));
  EXPECT_EQ(generate("smol", "ft:smol:default:gone:1").status().reason(), "MODEL_NOT_FOUND");
  EXPECT_EQ(generate("ft:smol:default:gone:1").status().reason(), "MODEL_NOT_FOUND");
  EXPECT_EQ(generate("unheard-of").status().code(), base::Code::kNotFound);
  EXPECT_EQ(generate("").status().reason(), "MISSING_FIELD");
  EXPECT_EQ(asked, 0);
}

TEST_F(RoutingTest, WithoutRoutesTheGatewaySaysSo) {
  // The scheduler sends an empty snapshot first; a base without workers is another matter.
  EXPECT_THAT(generate("smol").status().reason(),
              ::testing::AnyOf("STORE_UNAVAILABLE", "MODEL_NOT_FOUND"));
  route(routes_to({}));
  EXPECT_EQ(generate("smol").status().reason(), "NO_WORKER");
}

TEST_F(RoutingTest, AWorkerThatIsJustComingIsWaitedFor) {
  route(routes_to({}));
  start(seconds(60));
  auto call = std::async(std::launch::async, [&] { return generate("smol"); });
  EXPECT_TRUE(waits(call));
  auto routes = routes_to({});
  add_adapter(routes, "x");  // news that help nothing
  scheduler_->set_routes(routes);
  EXPECT_TRUE(waits(call));
  scheduler_->set_routes(routes_to({&a_}));
  const auto reply = call.get();
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->text(), "a");
}

// The client of a job that has just succeeded may be quicker than the routes.
TEST_F(RoutingTest, AnAdapterThatIsJustPublishedIsWaitedFor) {
  const std::string id = "ft:smol:default:new:1";
  route(routes_to({&a_}));
  start(seconds(60));
  auto call = std::async(std::launch::async, [&] { return generate("", id); });
  auto by_model = std::async(std::launch::async, [&] { return generate(id); });
  EXPECT_TRUE(waits(call));
  EXPECT_TRUE(waits(by_model));
  auto routes = routes_to({&a_});
  add_adapter(routes, id);
  scheduler_->set_routes(routes);
  for (auto* reply : {&call, &by_model}) {
    const auto answer = reply->get();
    ASSERT_TRUE(answer.ok()) << answer.status().to_string();
    EXPECT_EQ(answer->adapter().id(), id);
  }
  start(std::chrono::milliseconds(50));
  EXPECT_EQ(generate("ft:smol:default:gone:1").status().reason(), "MODEL_NOT_FOUND");
}

TEST_F(RoutingTest, TheWaitForAWorkerEndsByItselfAndWithTheClient) {
  route(routes_to({}));
  start(std::chrono::milliseconds(50));
  EXPECT_EQ(generate("smol").status().reason(), "NO_WORKER");

  start(std::chrono::hours(1));
  const auto tokens = stream();
  auto end = std::async(std::launch::async, [&] { return tokens->next(); });
  EXPECT_TRUE(waits(end));
  tokens->context.TryCancel();
  EXPECT_EQ(end.get(), "");
  EXPECT_EQ(tokens->finish().code(), base::Code::kCancelled);
  // An unknown name is no matter of time.
  EXPECT_EQ(generate("unheard-of").status().reason(), "MODEL_NOT_FOUND");
  gateway_->stop(std::chrono::milliseconds(200));  // nobody is left who would hold it up
}

TEST_F(RoutingTest, AStopEndsTheWaitForAWorker) {
  route(routes_to({}));
  start(std::chrono::hours(1));
  auto call = std::async(std::launch::async, [&] { return generate("smol"); });
  EXPECT_TRUE(waits(call));
  gateway_->stop(std::chrono::milliseconds(200));
  EXPECT_EQ(call.get().status().code(), base::Code::kUnavailable);
}

TEST_F(RoutingTest, TheLessLoadedWorkerAnswers) {
  route(routes_to({&a_, &b_}));
  Event go;
  std::promise<std::string> first;
  std::atomic<bool> held{false};
  const auto hold = [&](const std::string& name) {
    return [&, name](rpc::Call&, const v1::GenerateRequest&) {
      if (!held.exchange(true)) {
        first.set_value(name);
        EXPECT_TRUE(go.wait());
      }
      v1::GenerateResponse reply;
      reply.set_text(name);
      return base::Result<v1::GenerateResponse>(reply);
    };
  };
  a_.generate = hold("a");
  b_.generate = hold("b");
  auto busy = std::async(std::launch::async, [&] { return generate("smol"); });
  const std::string name = first.get_future().get();
  for (int i = 0; i < 10; ++i) EXPECT_NE(generate("smol").value().text(), name);
  go.set();
  EXPECT_TRUE(busy.get().ok());
}

TEST_F(RoutingTest, AWorkerThatHoldsTheAdapterIsPreferred) {
  auto routes = routes_to({&a_, &b_});
  add_adapter(routes, "x");
  routes.mutable_routes(1)->add_adapters("x");
  route(routes);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(generate("x").value().text(), "b");
}

TEST_F(RoutingTest, TokensComeInOrderAndOneByOne) {
  Event half;
  a_.stream = [&](FakeWorker::Stream out) {
    out->push(started("g1"));
    for (int i = 0; i < 100; ++i) out->push(delta(std::to_string(i)));
    EXPECT_TRUE(half.wait());  // the client has read all of them by then
    for (int i = 100; i < 200; ++i) out->push(delta(std::to_string(i)));
    out->push(finished());
    out->finish({});
  };
  route(routes_to({&a_}));
  const auto tokens = stream();
  EXPECT_EQ(tokens->next(), "start:g1");
  for (int i = 0; i < 200; ++i) {
    if (i == 100) half.set();
    ASSERT_EQ(tokens->next(), std::to_string(i));
  }
  EXPECT_EQ(tokens->next(), "finish");
  EXPECT_EQ(tokens->next(), "");
  EXPECT_TRUE(tokens->finish().ok());
}

TEST_F(RoutingTest, AnEngineLostBeforeATokenIsReplacedByAnother) {
  auto routes = routes_to({&a_, &b_});
  add_adapter(routes, "x");
  routes.mutable_routes(0)->add_adapters("x");  // a comes first
  route(routes);
  a_.stream = [](FakeWorker::Stream out) {
    out->push(started("of a"));
    out->finish(base::unavailable("ENGINE_LOST", "the engine ended with signal 9"));
  };
  b_.stream = [](FakeWorker::Stream out) {
    out->push(started("of b"));
    out->push(delta("token"));
    out->push(finished());
    out->finish({});
  };
  const auto tokens = stream("x");
  EXPECT_EQ(tokens->next(), "start:of b");
  EXPECT_EQ(tokens->next(), "token");
  EXPECT_EQ(tokens->next(), "finish");
  EXPECT_EQ(tokens->next(), "");
  EXPECT_TRUE(tokens->finish().ok());
}

TEST_F(RoutingTest, AnEngineLostAfterATokenIsAnError) {
  std::atomic<int> asked{0};
  const auto lose = [&](FakeWorker::Stream out) {
    ++asked;
    out->push(started("g"));
    out->push(delta("token"));
    out->finish(base::unavailable("ENGINE_LOST", "the engine ended with signal 9"));
  };
  a_.stream = lose;
  b_.stream = lose;
  route(routes_to({&a_, &b_}));
  const auto tokens = stream();
  EXPECT_EQ(tokens->next(), "start:g");
  EXPECT_EQ(tokens->next(), "token");
  EXPECT_EQ(tokens->next(), "");
  EXPECT_EQ(tokens->finish().reason(), "ENGINE_LOST");
  EXPECT_EQ(asked, 1);
}

TEST_F(RoutingTest, ItIsRepeatedOnceOnly) {
  std::atomic<int> asked{0};
  const auto lose = [&](rpc::Call&, const v1::GenerateRequest&) {
    ++asked;
    return base::Result<v1::GenerateResponse>(base::unavailable("ENGINE_LOST", "gone"));
  };
  FakeWorker c("c");
  a_.generate = b_.generate = c.generate = lose;
  route(routes_to({&a_, &b_, &c}));
  EXPECT_EQ(generate("smol").status().reason(), "ENGINE_LOST");
  EXPECT_EQ(asked, 2);
}

TEST_F(RoutingTest, OtherErrorsAreNotRepeated) {
  std::atomic<int> asked{0};
  const auto refuse = [&](rpc::Call&, const v1::GenerateRequest&) {
    ++asked;
    return base::Result<v1::GenerateResponse>(
        base::invalid_argument("CONTEXT_LENGTH_EXCEEDED", "9000 tokens, at most 8192"));
  };
  a_.generate = b_.generate = refuse;
  route(routes_to({&a_, &b_}));
  EXPECT_EQ(generate("smol").status().reason(), "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_EQ(asked, 1);
}

TEST_F(RoutingTest, AWorkerThatIsKilledEndsItsStreamsAtOnce) {
  Event begun;
  FakeWorker::Stream kept;
  a_.stream = [&](FakeWorker::Stream out) {
    out->push(started("g"));
    out->push(delta("token"));
    kept = std::move(out);
    begun.set();
  };
  route(routes_to({&a_}));
  const auto tokens = stream();
  EXPECT_EQ(tokens->next(), "start:g");
  EXPECT_EQ(tokens->next(), "token");
  ASSERT_TRUE(begun.wait());
  const auto before = steady_clock::now();
  a_.kill();
  EXPECT_EQ(tokens->next(), "");
  EXPECT_EQ(tokens->finish().code(), base::Code::kUnavailable);
  EXPECT_LT(steady_clock::now() - before, seconds(15));
  EXPECT_EQ(generate("smol").status().reason(), "ENGINE_LOST");  // still routed, nobody there
}

TEST_F(RoutingTest, ADeadWorkerCostsNoRequestWhileAnotherLives) {
  route(routes_to({&a_, &b_}));
  a_.kill();
  for (int i = 0; i < 50; ++i) {
    const auto reply = generate("smol");
    ASSERT_TRUE(reply.ok()) << i << ": " << reply.status().to_string();
    EXPECT_EQ(reply.value().text(), "b");
  }
}

TEST_F(RoutingTest, AClientThatLeavesFreesItsPlace) {
  Event begun, stopped;
  a_.stream = [&](FakeWorker::Stream out) {
    out->push(started("g"));
    out->push(delta("t"));
    begun.set();
    if (rpc::wait_for_stop(out->call().stop())) stopped.set();
  };
  route(routes_to({&a_}));
  const auto tokens = stream();
  ASSERT_TRUE(begun.wait());
  tokens->context.TryCancel();
  EXPECT_TRUE(stopped.wait());
}

TEST_F(RoutingTest, InferenceOutlivesTheScheduler) {
  route(routes_to({&a_}));
  const std::string address = scheduler_->address();
  scheduler_.reset();
  grpc::ClientContext context;
  limit(context);
  v1::File file;
  EXPECT_EQ(rpc::from_grpc(files_->GetFile(&context, v1::GetFileRequest(), &file)).code(),
            base::Code::kUnavailable);
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(generate("smol").ok());
  EXPECT_THAT(http("/readyz"), ::testing::StartsWith("HTTP/1.1 200 "));
  // Back at the same address, with news: seen within the back-off's 2 s and a little.
  scheduler_ = std::make_unique<FakeScheduler>(address);
  const auto before = steady_clock::now();
  auto routes = routes_to({&a_});
  add_adapter(routes, "new");
  scheduler_->set_routes(routes);
  while (!generate("new").ok()) {
    ASSERT_LT(steady_clock::now() - before, seconds(30));
  }
}

TEST_F(RoutingTest, StopLetsARunningGenerationEnd) {
  Event begun, go;
  a_.stream = [&](FakeWorker::Stream out) {
    out->push(started("g"));
    begun.set();
    EXPECT_TRUE(go.wait());
    out->push(delta("late"));
    out->push(finished());
    out->finish({});
  };
  route(routes_to({&a_}));
  const auto tokens = stream();
  ASSERT_TRUE(begun.wait());
  std::jthread stopper([&] { gateway_->stop(seconds(10)); });
  while (generate("smol").ok()) {
  }
  go.set();
  EXPECT_EQ(tokens->next(), "start:g");
  EXPECT_EQ(tokens->next(), "late");
  EXPECT_EQ(tokens->next(), "finish");
  EXPECT_EQ(tokens->next(), "");
  EXPECT_TRUE(tokens->finish().ok());
}

TEST_F(RoutingTest, AGenerationLongerThanTheGraceIsToldWhy) {
  Event begun;
  FakeWorker::Stream kept;
  a_.stream = [&](FakeWorker::Stream out) {
    kept = std::move(out);
    begun.set();
  };
  route(routes_to({&a_}));
  const auto tokens = stream();
  ASSERT_TRUE(begun.wait());
  gateway_->stop(std::chrono::milliseconds(500));
  EXPECT_EQ(tokens->next(), "");
  EXPECT_EQ(tokens->finish().reason(), "SERVER_DRAINING");
}

TEST_F(RoutingTest, ManyStreamsAtOnceAllEndWell) {
  const auto answer = [](FakeWorker::Stream out) {
    out->push(started("g"));
    for (int i = 0; i < 50; ++i) out->push(delta(std::to_string(i)));
    out->push(finished());
    out->finish({});
  };
  a_.stream = b_.stream = answer;
  route(routes_to({&a_, &b_}));
  std::vector<std::jthread> clients;
  std::atomic<int> good{0};
  for (int client = 0; client < 16; ++client) {
    clients.emplace_back([&] {
      for (int round = 0; round < 5; ++round) {
        const auto tokens = stream();
        int deltas = -2;  // start and finish
        while (!tokens->next().empty()) ++deltas;
        if (tokens->finish().ok() && deltas == 50) ++good;
      }
    });
  }
  clients.clear();
  EXPECT_EQ(good, 16 * 5);
}

}  // namespace
}  // namespace dex::gateway
