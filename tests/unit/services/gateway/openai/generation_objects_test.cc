#include "services/gateway/openai/generation_objects.h"

#include <gtest/gtest.h>

namespace dex::gateway::openai {
namespace {

GenerationPlan plan_of(bool chat, size_t choices, int per_prompt = 1) {
  GenerationPlan plan;
  plan.chat = chat;
  plan.choices_per_prompt = per_prompt;
  plan.requests.resize(choices);
  return plan;
}
v1::GenerateResponse reply(const std::string& text, int prompt, int completion) {
  v1::GenerateResponse made;
  made.set_id("gen-01jd");
  made.set_model("ft:m:default::01jd");
  made.mutable_create_time()->set_seconds(1764);
  made.mutable_adapter()->set_id("ft:m:default::01jd");
  made.mutable_adapter()->set_version("0123456789ab");
  made.mutable_adapter()->set_content_sha256("0123456789abcdef");
  made.set_text(text);
  made.set_seed(7);
  made.set_finish_reason(v1::FINISH_REASON_LENGTH);
  made.set_system_fingerprint("dex");
  made.mutable_usage()->set_prompt_tokens(prompt);
  made.mutable_usage()->set_completion_tokens(completion);
  return made;
}

TEST(GenerationObjectTest, AChatCompletion) {
  const json made = generation_object(plan_of(true, 1), {reply("hi", 5, 2)});
  EXPECT_EQ(made.at("object"), "chat.completion");
  EXPECT_EQ(made.at("id"), "chatcmpl-01jd");
  EXPECT_EQ(made.at("created"), 1764);
  EXPECT_EQ(made.at("model"), "ft:m:default::01jd");
  const json& choice = made.at("choices").at(0);
  EXPECT_EQ(choice.at("message").at("role"), "assistant");
  EXPECT_EQ(choice.at("message").at("content"), "hi");
  EXPECT_EQ(choice.at("finish_reason"), "length");
  EXPECT_TRUE(choice.at("logprobs").is_null());
  EXPECT_EQ(made.at("dex").at("adapter").at("version"), "0123456789ab");
  EXPECT_EQ(made.at("usage"), json::parse(R"({"prompt_tokens": 5, "completion_tokens": 2,
                                              "total_tokens": 7})"));
}

TEST(GenerationObjectTest, APromptCountsOnceHoweverManyChoicesItHas) {
  const json made = generation_object(plan_of(false, 4, 2), {reply("a", 5, 1), reply("b", 5, 2),
                                                             reply("c", 7, 3), reply("d", 7, 4)});
  EXPECT_EQ(made.at("object"), "text_completion");
  EXPECT_EQ(made.at("usage").at("prompt_tokens"), 12);
  EXPECT_EQ(made.at("usage").at("completion_tokens"), 10);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(made.at("choices").at(i).at("index"), i);
  EXPECT_EQ(made.at("choices").at(2).at("text"), "c");
}

v1::GenerateStreamResponse::Start start() {
  v1::GenerateStreamResponse::Start made;
  made.set_id("gen-01jd");
  made.set_model("m");
  return made;
}
v1::GenerateStreamResponse::Delta text(const std::string& text) {
  v1::GenerateStreamResponse::Delta made;
  made.set_text(text);
  return made;
}
v1::GenerateStreamResponse::Finish finish(int completion) {
  v1::GenerateStreamResponse::Finish made;
  made.set_finish_reason(v1::FINISH_REASON_STOP);
  made.mutable_usage()->set_prompt_tokens(3);
  made.mutable_usage()->set_completion_tokens(completion);
  return made;
}

TEST(ChunkMakerTest, AChatsFirstChunkHasTheRoleAndTheLastTheReason) {
  auto plan = plan_of(true, 1);
  plan.include_usage = true;
  ChunkMaker chunks(plan);
  const json first = chunks.start(0, start()).value();
  EXPECT_EQ(first.at("object"), "chat.completion.chunk");
  EXPECT_EQ(first.at("choices").at(0).at("delta").at("role"), "assistant");
  EXPECT_TRUE(first.at("dex").at("adapter").is_null()) << "the base answers";
  EXPECT_TRUE(first.at("usage").is_null());
  EXPECT_FALSE(chunks.delta(0, text(""))) << "half a character says nothing";
  const json middle = chunks.delta(0, text("é")).value();
  EXPECT_EQ(middle.at("choices").at(0).at("delta").at("content"), "é");
  EXPECT_EQ(middle.at("id"), first.at("id"));
  EXPECT_FALSE(middle.contains("dex"));
  const json last = chunks.finish(0, finish(2));
  EXPECT_EQ(last.at("choices").at(0).at("finish_reason"), "stop");
  EXPECT_EQ(last.at("choices").at(0).at("delta"), json::object());
  EXPECT_EQ(chunks.usage().at("choices"), json::array());
  EXPECT_EQ(chunks.usage().at("usage").at("total_tokens"), 5);
}

TEST(ChunkMakerTest, ACompletionsOffsetsGoOnFromChunkToChunk) {
  auto plan = plan_of(false, 2);
  for (auto& request : plan.requests) request.set_logprobs(0);
  ChunkMaker chunks(plan);
  EXPECT_FALSE(chunks.start(0, start())) << "there is no role to tell";
  const auto offset = [&](size_t choice, const std::string& token) {
    auto delta = text(token);
    delta.add_logprobs()->set_token(token);
    const json chunk = chunks.delta(choice, delta).value();
    EXPECT_EQ(chunk.at("choices").at(0).at("index"), choice);
    return chunk.at("choices").at(0).at("logprobs").at("text_offset").at(0).get<int>();
  };
  EXPECT_EQ(offset(0, "abc"), 0);
  EXPECT_EQ(offset(1, "x"), 0);
  EXPECT_EQ(offset(0, "d"), 3);
  EXPECT_EQ(offset(1, "y"), 1);
}

}  // namespace
}  // namespace dex::gateway::openai
