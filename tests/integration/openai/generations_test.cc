#include <atomic>
#include <map>
#include <memory>
#include <thread>

#include "tests/integration/openai/openai_fixture.h"
#include "tests/support/eventually.h"

namespace dex::gateway {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// A worker that answers with its prompt and seed, whole or in three pieces.
class OpenAiGenerationsTest : public OpenAiTest {
 protected:
  void SetUp() override {
    OpenAiTest::SetUp();
    worker_.generate = [](rpc::Call&, const v1::GenerateRequest& request) {
      v1::GenerateResponse reply;
      reply.set_id("gen-1");
      reply.set_model(request.model());
      reply.set_text(request.prompt() + std::to_string(request.seed()));
      reply.set_finish_reason(v1::FINISH_REASON_STOP);
      if (request.model() == "ft:a") reply.mutable_adapter()->set_id("ft:a");
      if (request.prompt() == "bad")
        return base::Result<v1::GenerateResponse>(
            base::bad_field("VALUE_OUT_OF_RANGE", "temperature", "is wrong"));
      return base::Result<v1::GenerateResponse>(std::move(reply));
    };
    worker_.stream = [](const FakeWorker::Stream& out) {
      out->push(started("gen-1"));
      for (const char* text : {"a", "b", "c"}) out->push(delta(text));
      out->push(finished());
      out->finish({});
    };
    auto routes = routes_to({&worker_});
    add_adapter(routes, "ft:a");
    route(std::move(routes));
  }

  static json chat(const json& more = json::object()) {
    json body = {{"model", "smol"},
                 {"messages", json::array({{{"role", "user"}, {"content", "hi"}}})}};
    body.update(more);
    return body;
  }

  FakeWorker worker_{"w"};
};

TEST_F(OpenAiGenerationsTest, ChoicesComeInTheOrderOfPromptsTimesN) {
  const auto reply =
      post("/v1/completions", {{"model", "ft:a"}, {"prompt", {"x", "y"}}, {"n", 2}, {"seed", 5}});
  ASSERT_EQ(reply.status, 200) << reply.body;
  std::string texts;
  const json body = reply.json();
  for (const auto& choice : body.at("choices")) texts += choice.at("text").get<std::string>() + " ";
  EXPECT_EQ(texts, "x5 x6 y5 y6 ");
  EXPECT_EQ(reply.headers.at("x-dex-adapter"), "ft:a");
  EXPECT_EQ(reply.json().at("dex").at("adapter").at("id"), "ft:a");
  EXPECT_FALSE(reply.headers.at("x-request-id").empty());
}

TEST_F(OpenAiGenerationsTest, ARefusedAnswerEndsItsOtherGenerations) {
  std::atomic<bool> ended = false;
  const auto answer = worker_.generate;
  worker_.generate = [&](rpc::Call& call, const v1::GenerateRequest& request) {
    if (request.prompt() == "x") {
      ended = support::eventually([&] { return call.stop().stop_requested(); });
    }
    return answer(call, request);
  };
  EXPECT_EQ(post("/v1/completions", {{"model", "ft:a"}, {"prompt", {"bad", "x"}}}).status, 400);
  EXPECT_TRUE(support::eventually([&] { return ended.load(); }));
}

TEST_F(OpenAiGenerationsTest, TheFirstFailureIsTheAnswer) {
  const auto reply = post("/v1/completions", {{"model", "smol"}, {"prompt", {"x", "bad", "y"}}});
  EXPECT_EQ(reply.status, 400);
  EXPECT_EQ(reply.error(), "value_out_of_range temperature");
}

TEST_F(OpenAiGenerationsTest, AnUnknownModelIsNeverAnsweredByTheBase) {
  for (const bool stream : {false, true}) {
    const auto reply = post("/v1/chat/completions", chat({{"model", "ft:b"}, {"stream", stream}}));
    EXPECT_EQ(reply.status, 404);
    EXPECT_THAT(reply.error(), StartsWith("model_not_found"));
    EXPECT_EQ(reply.json().at("error").at("type"), "not_found_error");
  }
}

TEST_F(OpenAiGenerationsTest, AStreamHasRoleTextReasonUsageAndDone) {
  const auto reply = post("/v1/chat/completions",
                          chat({{"stream", true}, {"stream_options", {{"include_usage", true}}}}));
  ASSERT_EQ(reply.status, 200) << reply.body;
  EXPECT_THAT(reply.headers.at("content-type"), StartsWith("text/event-stream"));
  const auto events = reply.events();
  ASSERT_EQ(events.size(), 7U) << reply.body;  // role, a, b, c, reason, usage, [DONE]
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  for (size_t i = 0; i < 4; ++i)
    text += json::parse(events[i]).at("choices").at(0).at("delta").at("content").get<std::string>();
  EXPECT_EQ(text, "abc");
  EXPECT_EQ(json::parse(events[4]).at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_TRUE(json::parse(events[5]).at("usage").is_object());
}

TEST_F(OpenAiGenerationsTest, EveryChoiceOfAStreamIsWhole) {
  const auto reply = post("/v1/completions",
                          {{"model", "smol"}, {"prompt", {"x", "y"}}, {"n", 4}, {"stream", true}});
  std::map<int, std::string> texts;
  for (const auto& event : reply.events()) {
    if (event == "[DONE]") continue;
    const json chunk = json::parse(event);
    for (const auto& choice : chunk.at("choices"))
      texts[choice.at("index").get<int>()] += choice.at("text").get<std::string>();
  }
  ASSERT_EQ(texts.size(), 8U);
  for (const auto& [index, text] : texts) EXPECT_EQ(text, "abc") << index;
  EXPECT_EQ(reply.events().back(), "[DONE]");
}

TEST_F(OpenAiGenerationsTest, AFailureInAStreamIsItsLastEventWithoutDone) {
  worker_.stream = [](const FakeWorker::Stream& out) {
    out->push(started("gen-1"));
    out->push(delta("a"));
    out->finish(base::Status(base::Code::kDataLoss, "ARTIFACT_CORRUPT", "the adapter broke"));
  };
  const auto reply = post("/v1/chat/completions", chat({{"stream", true}}));
  EXPECT_EQ(reply.status, 200);
  const auto events = reply.events();
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(json::parse(events.back()).at("error").at("code"), "artifact_corrupt");
  EXPECT_THAT(reply.body, ::testing::Not(HasSubstr("[DONE]")));
}

TEST_F(OpenAiGenerationsTest, AClientThatLeavesEndsItsGenerations) {
  const auto stopped = std::make_shared<std::atomic<bool>>(false);
  worker_.stream = [stopped](const FakeWorker::Stream& out) {
    out->push(started("gen-1"));
    out->push(delta("a"));
    std::thread([out, stopped] {
      while (!out->call().stop().stop_requested()) std::this_thread::yield();
      *stopped = true;
      out->finish({});
    }).detach();
  };
  {
    support::RawConnection connection(support::port_of(gateway_->http_address()));
    const std::string body = chat({{"stream", true}}).dump();
    connection.send(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
        "application/json\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_THAT(connection.read_until("\"a\""), HasSubstr("text/event-stream"));
  }
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!*stopped && std::chrono::steady_clock::now() < end) std::this_thread::yield();
  EXPECT_TRUE(*stopped);
}

TEST_F(OpenAiGenerationsTest, WhatIsNotThereSaysSo) {
  for (const char* path :
       {"/v1/embeddings", "/v1/responses", "/v1/uploads", "/v1/batches/x/cancel"}) {
    const auto reply = post(path, json::object());
    EXPECT_EQ(reply.status, 501) << path;
    EXPECT_EQ(reply.error(), "not_supported");
  }
  EXPECT_EQ(post("/v1/nothing", json::object()).status, 404);
  EXPECT_EQ(send("GET", "/openapi.json").json().at("openapi"), "3.1.0");
}

TEST_F(OpenAiGenerationsTest, ABodyThatIsNoJsonIsRefusedInWords) {
  EXPECT_EQ(send("POST", "/v1/chat/completions", "{").status, 400);
  EXPECT_EQ(post("/v1/chat/completions", chat({{"temprature", 1}})).error(),
            "unknown_field temprature");
}

}  // namespace
}  // namespace dex::gateway
