#include "services/gateway/openai/generation_request.h"

#include <gmock/gmock.h>

namespace dex::gateway::openai {
namespace {

using ::testing::HasSubstr;

base::Result<GenerationPlan> chat(const std::string& more) {
  return read_chat(json::parse(R"({"model": "m", "messages": [{"role": "user", "content": "hi"}])" +
                               (more.empty() ? "" : ", " + more) + "}"));
}
base::Result<GenerationPlan> completion(const std::string& more) {
  return read_completion(json::parse(R"({"model": "m")" + (more.empty() ? "" : ", " + more) + "}"));
}
std::string refusal(const base::Result<GenerationPlan>& plan) {
  return plan.ok() ? "OK" : plan.status().reason() + " " + plan.status().violations().at(0).field;
}

TEST(ReadCompletionTest, WhatTheHarnessSends) {
  const auto plan = completion(
      R"("prompt": [[1, 2, 3], [4]], "max_tokens": 1, "temperature": 0, "logprobs": 1,
         "echo": true, "seed": 1234)");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  ASSERT_EQ(plan.value().requests.size(), 2U);
  const auto& first = plan.value().requests[0];
  EXPECT_EQ(first.tokens().ids_size(), 3);
  EXPECT_EQ(first.max_tokens(), 1U);
  EXPECT_TRUE(first.has_temperature());
  EXPECT_EQ(first.temperature(), 0);
  EXPECT_EQ(first.logprobs(), 1U);
  EXPECT_TRUE(first.echo());
  EXPECT_EQ(first.seed(), 1234U);
  EXPECT_EQ(plan.value().requests[1].tokens().ids(0), 4);
}

TEST(ReadCompletionTest, ChoicesComePromptByPromptAndDifferBySeed) {
  const auto plan = completion(R"("prompt": ["a", "b"], "n": 3, "seed": 5)");
  ASSERT_TRUE(plan.ok());
  std::string order;
  for (const auto& request : plan.value().requests)
    order += request.prompt() + std::to_string(request.seed()) + " ";
  EXPECT_EQ(order, "a5 a6 a7 b5 b6 b7 ");
  EXPECT_EQ(plan.value().choices_per_prompt, 3);
}

TEST(ReadCompletionTest, PromptsOfEveryKind) {
  EXPECT_EQ(completion(R"("prompt": "x")").value().requests[0].prompt(), "x");
  EXPECT_EQ(completion(R"("prompt": [7, 8])").value().requests.size(), 1U);
  EXPECT_EQ(completion(R"("prompt": [7, 8])").value().requests[0].tokens().ids(1), 8);
  for (const char* wrong : {"7", "{}", "[[]]", "[{}]"})
    EXPECT_THAT(refusal(completion("\"prompt\": " + std::string(wrong))), HasSubstr("prompt"))
        << wrong;
  EXPECT_EQ(refusal(completion("")), "MISSING_FIELD prompt");
  EXPECT_EQ(refusal(completion(R"("prompt": [[1, -1]])")), "VALUE_OUT_OF_RANGE prompt[0].ids[1]");
  EXPECT_EQ(refusal(completion(R"("prompt": "x", "n": 17)")), "VALUE_OUT_OF_RANGE n");
  std::string many = "\"x\"";
  for (int i = 0; i < 31; ++i) many += ", \"x\"";
  EXPECT_TRUE(completion("\"n\": 4, \"prompt\": [" + many + "]").ok());
  EXPECT_EQ(refusal(completion("\"n\": 5, \"prompt\": [" + many + "]")), "VALUE_OUT_OF_RANGE n");
}

TEST(ReadCompletionTest, BestOfMustBeAll) {
  EXPECT_TRUE(completion(R"("prompt": "x", "n": 2, "best_of": 2)").ok());
  EXPECT_EQ(refusal(completion(R"("prompt": "x", "best_of": 2)")), "UNSUPPORTED_PARAMETER best_of");
}

TEST(ReadChatTest, TakesMessagesOfBothForms) {
  const auto plan = read_chat(json::parse(R"({"model": "ft:a", "messages": [
      {"role": "system", "content": [{"type": "text", "text": "be "}, {"type": "text", "text": "kind"}]},
      {"role": "assistant", "content": "ok", "refusal": null, "tool_calls": [], "audio": null}],
      "max_completion_tokens": 9, "adapter": "none", "dex_lambda_scale": 0.5})"));
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  const auto& request = plan.value().requests.at(0);
  EXPECT_EQ(request.chat().messages(0).content(), "be kind");
  EXPECT_EQ(request.chat().messages(1).role(), "assistant");
  EXPECT_EQ(request.max_tokens(), 9U);
  EXPECT_EQ(request.adapter(), "none");
  EXPECT_EQ(request.dex_lambda_scale(), 0.5);
}

TEST(ReadChatTest, RefusesWhatItCanNotDo) {
  for (const char* field : {R"("tools": [{}])", R"("store": true)", R"("logit_bias": {"5": 1})",
                            R"("response_format": {"type": "json_object"})",
                            R"("reasoning_effort": "low")", R"("tool_choice": "auto")",
                            R"("stream": true, "stream_options": {"continuous_usage": true})"}) {
    EXPECT_THAT(refusal(chat(field)), HasSubstr("UNSUPPORTED_PARAMETER")) << field;
  }
  EXPECT_EQ(refusal(chat(R"("temprature": 1)")), "UNKNOWN_FIELD temprature");
  EXPECT_EQ(refusal(chat(R"("echo": true)")), "UNKNOWN_FIELD echo");
  EXPECT_EQ(refusal(chat(R"("top_logprobs": 2)")), "UNUSED_FIELD top_logprobs");
  EXPECT_EQ(refusal(chat(R"("max_tokens": 1, "max_completion_tokens": 2)")),
            "CONFLICTING_FIELDS max_completion_tokens");
  EXPECT_EQ(refusal(read_chat(json::parse(R"({"model": "m", "messages": []})"))),
            "MISSING_FIELD messages");
  EXPECT_EQ(refusal(read_chat(
                json::parse(R"({"model": "m", "messages": [{"role": "robot", "content": "x"}]})"))),
            "INVALID_FIELD messages[0].role");
  EXPECT_EQ(
      refusal(read_chat(json::parse(
          R"({"model": "m", "messages": [{"role": "user", "content": [{"type": "image_url"}]}]})"))),
      "UNSUPPORTED_PARAMETER messages[0].content[0].type");
}

TEST(ReadChatTest, WhatHasNoEffectIsTaken) {
  EXPECT_TRUE(chat(R"("user": "u", "metadata": {"a": "b"}, "store": false, "service_tier": "auto",
      "parallel_tool_calls": true, "tools": [], "response_format": {"type": "text"}, "stop": null,
      "logit_bias": {}, "safety_identifier": "s", "prompt_cache_key": "k")")
                  .ok());
}

TEST(ReadChatTest, ManyStopsAndStreams) {
  const auto plan = chat(
      R"("stop": ["a", "b", "c", "d", "e", "f"], "stream": true, "stream_options": {"include_usage": true})");
  ASSERT_TRUE(plan.ok()) << plan.status().to_string();
  EXPECT_EQ(plan.value().requests[0].stop_size(), 6);
  EXPECT_TRUE(plan.value().stream);
  EXPECT_TRUE(plan.value().include_usage);
  EXPECT_EQ(chat(R"("stop": "x")").value().requests[0].stop(0), "x");
  EXPECT_EQ(refusal(chat(R"("stream_options": {})")), "UNUSED_FIELD stream_options");
}

TEST(ReadChatTest, LogprobsSetBoth) {
  const auto with = chat(R"("logprobs": true, "top_logprobs": 3)").value();
  EXPECT_EQ(with.requests[0].logprobs(), 3U);
  EXPECT_EQ(with.top_logprobs, 3);
  EXPECT_TRUE(chat(R"("logprobs": true)").value().requests[0].has_logprobs());
  EXPECT_FALSE(chat(R"("logprobs": false)").value().requests[0].has_logprobs());
}

}  // namespace
}  // namespace dex::gateway::openai
