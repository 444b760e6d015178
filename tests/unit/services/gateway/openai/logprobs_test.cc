#include "services/gateway/openai/logprobs.h"

#include <gtest/gtest.h>

namespace dex::gateway::openai {
namespace {

v1::TokenLogprob& add(LogprobList& list, const std::string& token, std::optional<double> logprob) {
  auto& entry = *list.Add();
  entry.set_token(token);
  if (logprob) entry.set_logprob(*logprob);
  return entry;
}
void add_top(v1::TokenLogprob& entry, const std::string& token, double logprob) {
  auto& top = *entry.add_top();
  top.set_token(token);
  top.set_logprob(logprob);
}

TEST(CompletionLogprobsTest, AreAsTheHarnessReadsThem) {
  LogprobList entries;
  add(entries, "The", std::nullopt);
  add_top(add(entries, " cat", -0.25F), " cat", -0.25F);
  auto& last = add(entries, " s\xc3\xa9", -2.5F);
  add_top(last, " is", -0.125F);
  TextPosition position;
  const json made = completion_logprobs(entries, position);
  EXPECT_EQ(made.at("tokens"), json::parse(R"(["The", " cat", " sé"])"));
  EXPECT_EQ(made.at("token_logprobs"), json::parse("[null, -0.25, -2.5]"));
  EXPECT_TRUE(made.at("top_logprobs")[0].is_null());
  // The chosen one is among them with the identical number: greedy is told by equality.
  EXPECT_EQ(made.at("top_logprobs")[1].at(" cat"), made.at("token_logprobs")[1]);
  EXPECT_EQ(made.at("top_logprobs")[2], json::parse(R"({" is": -0.125, " sé": -2.5})"));
  EXPECT_EQ(made.at("text_offset"), json::parse("[0, 3, 7]")) << "in characters";
  EXPECT_EQ(position.characters, 10);
}

TEST(CompletionLogprobsTest, APartOfACharacterBeginsWhereTheCharacterDoes) {
  LogprobList entries;
  add(entries, "a", -1);
  add(entries, "bytes:\\xe2\\x82", -1);
  add(entries, "bytes:\\xac", -1);
  add(entries, "b", -1);
  TextPosition position;
  EXPECT_EQ(completion_logprobs(entries, position).at("text_offset"), json::parse("[0, 1, 1, 2]"));
}

TEST(CompletionLogprobsTest, EqualNamesNeverHideOneAnother) {
  LogprobList entries;
  auto& entry = add(entries, "", -1);
  entry.set_token_id(7);
  for (const int id : {7, 8}) {
    auto& top = *entry.add_top();
    top.set_token_id(id);
    top.set_logprob(-id);
  }
  TextPosition position;
  const json top = completion_logprobs(entries, position).at("top_logprobs")[0];
  EXPECT_EQ(top.size(), 2U);
  EXPECT_EQ(top.at("token_id:7"), -1.0);
}

TEST(ChatLogprobsTest, HaveBytesAndTheLikeliestWhereAskedFor) {
  LogprobList entries;
  auto& entry = add(entries, "bytes:\\xf0\\x9f", -0.5);
  add_top(entry, "x", -0.75);
  const json made = chat_logprobs(entries, 1);
  EXPECT_EQ(made.at("content")[0].at("bytes"), json::parse("[240, 159]"));
  EXPECT_EQ(made.at("content")[0].at("top_logprobs")[0],
            json::parse(R"({"token": "x", "bytes": [120], "logprob": -0.75})"));
  EXPECT_EQ(chat_logprobs(entries, 0).at("content")[0].at("top_logprobs"), json::array());
}

TEST(TokenBytesTest, OnlyWholeEscapesAreOnes) {
  EXPECT_EQ(token_bytes("bytes:\\x00\\xff"), std::string("\x00\xff", 2));
  EXPECT_EQ(token_bytes("bytes:"), "bytes:");
  EXPECT_EQ(token_bytes("bytes:\\xg0"), "bytes:\\xg0");
  EXPECT_EQ(token_bytes("token_id:7"), std::nullopt);
  EXPECT_EQ(token_bytes("é"), "é");
}

}  // namespace
}  // namespace dex::gateway::openai
