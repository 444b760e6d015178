#include "services/text/row_encoder.h"

#include <algorithm>
#include <numeric>

#include "services/text/detokenizer.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::text {
namespace {

constexpr const char* kTurns =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|turn|>\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

Row chat(std::vector<Message> messages) {
  return {.format = RowFormat::kChat, .messages = std::move(messages)};
}
Row text_row(std::string text) {
  return {.format = RowFormat::kText, .text = std::move(text)};
}
Row pair(std::string prompt, std::string completion) {
  return {.format = RowFormat::kPromptCompletion,
          .prompt = std::move(prompt),
          .completion = std::move(completion)};
}

// The text of the trained ids, those of different weights apart by '|'.
std::string trained(const Tokenizer& tokenizer, const EncodedRow& row) {
  std::string text;
  for (size_t i = 0; i < row.ids.size(); ++i) {
    if (row.weights[i] == 0) continue;
    if (!text.empty() && row.weights[i - 1] != row.weights[i]) text += '|';
    text += tokenizer.token_bytes(row.ids[i]);
  }
  return text;
}

class RowEncoderTest : public testing::Test {
 protected:
  std::vector<EncodedRow> encode(const Row& row, RowEncoder::Options options = {}) const {
    return RowEncoder(bytes_.get(), turns_.get(), options).encode(row);
  }
  const std::unique_ptr<Tokenizer> bytes_ = byte_tokenizer();
  const std::unique_ptr<Tokenizer> with_bos_ = byte_tokenizer(true);
  const std::unique_ptr<ChatTemplate> turns_ = template_of(kTurns);
};

TEST_F(RowEncoderTest, TrainsAssistantWordsWithTheirEndOfTurnAndNothingElse) {
  const auto rows = encode(chat(
      {{"system", "s"}, {"user", "u"}, {"assistant", "one"}, {"user", "v"}, {"assistant", "two"}}));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_FALSE(rows[0].drop);
  EXPECT_EQ(trained(*bytes_, rows[0]), "one<|turn|>|two<|turn|>");
  EXPECT_EQ(rows[0].trainable_tokens, 8);
  EXPECT_EQ(rows[0].prompt_tokens + rows[0].trainable_tokens,
            static_cast<int32_t>(rows[0].ids.size()));
}

TEST_F(RowEncoderTest, WeighsMessages) {
  const auto rows = encode(chat({{"user", "u"},
                                 {.role = "assistant", .content = "no", .weight = 0.0},
                                 {"user", "v"},
                                 {.role = "assistant", .content = "half", .weight = 0.5}}));
  EXPECT_EQ(trained(*bytes_, rows[0]), "half<|turn|>");
  EXPECT_EQ(*std::ranges::max_element(rows[0].weights), 0.5f);
}

TEST_F(RowEncoderTest, TrainOnInputsTrainsAllButTheFirstIdAndKeepsWeights) {
  const auto rows =
      encode(chat({{"user", "u"}, {.role = "assistant", .content = "no", .weight = 0.0}}),
             {.train_on_inputs = true});
  EXPECT_EQ(trained(*bytes_, rows[0]), "user>u<|turn|>\n<assistant>|\n");
  EXPECT_EQ(rows[0].weights[0], 0);
}

TEST_F(RowEncoderTest, ChatIdsAreThoseOfServing) {
  // C39: what training sees of a chat is what a request with the same messages gets.
  for (const auto& entry : golden()["chats"]) {
    if (entry["add_generation_prompt"].get<bool>()) continue;
    const auto messages = messages_of(entry["messages"]);
    const RowEncoder encoder(&real_tokenizer(), &real_template(), {});
    const auto rows = encoder.encode(chat(messages));
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0].ids, entry["ids"].get<std::vector<int32_t>>());
    if (messages.back().role != "assistant") {
      EXPECT_EQ(rows[0].drop.value().code, "no_trainable_tokens");
      continue;
    }
    EXPECT_EQ(rows[0].ids[rows[0].ids.size() - 2],
              2);  // <|im_end|> is trained, the line end behind it is not
    EXPECT_EQ(rows[0].weights[rows[0].ids.size() - 2], 1);
    EXPECT_EQ(rows[0].weights.back(), 0);
    if (messages.back().content.starts_with("\n")) continue;  // the next test
    // The last answer starts exactly where serving's prompt ends.
    const auto prompt =
        real_template().render(std::span(messages).first(messages.size() - 1), true);
    const auto prompt_ids = *real_tokenizer().encode(*prompt, false);
    EXPECT_TRUE(std::equal(prompt_ids.begin(), prompt_ids.end(), rows[0].ids.begin()));
    EXPECT_EQ(rows[0].weights[prompt_ids.size() - 1], 0);
    EXPECT_EQ(rows[0].weights[prompt_ids.size()], 1);
  }
}

// An answer that begins with a line end melts with the template's own into one token, in training
// as in serving the whole chat. No model is asked for half a token, so that one is not trained.
TEST_F(RowEncoderTest, DoesNotTrainATokenThatBeginsInTheTemplate) {
  const RowEncoder encoder(&real_tokenizer(), &real_template(), {});
  const auto rows = encoder.encode(chat({{"user", "u"}, {"assistant", "\n\nwords"}}));
  EXPECT_EQ(trained(real_tokenizer(), rows[0]), "\nwords<|im_end|>");
}

TEST_F(RowEncoderTest, EncodesPromptAndCompletionApartAndEndsWithEos) {
  const auto rows = encode(pair("ab", "cd"));
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].ids, (std::vector<int32_t>{'a', 'b', 'c', 'd', 257}));
  EXPECT_EQ(rows[0].weights, (std::vector<float>{0, 0, 1, 1, 1}));
  const RowEncoder real(&real_tokenizer(), nullptr, {});
  // "New" + "York" would be other ids if encoded together.
  const auto apart = real.encode(pair("def main(", "):"));
  auto expected = *real_tokenizer().encode("def main(", true);
  const auto completion = *real_tokenizer().encode("):", false);
  expected.insert(expected.end(), completion.begin(), completion.end());
  expected.push_back(2);
  EXPECT_EQ(apart[0].ids, expected);
  EXPECT_NE(*real_tokenizer().encode("def main():", true),
            std::vector(expected.begin(), expected.end() - 1));
}

TEST_F(RowEncoderTest, NeverDoublesBosOrEos) {
  const RowEncoder encoder(with_bos_.get(), nullptr, {});
  EXPECT_EQ(encoder.encode(text_row("a"))[0].ids, (std::vector<int32_t>{256, 'a', 257}));
  EXPECT_EQ(encoder.encode(text_row("<s>a</s>"))[0].ids, (std::vector<int32_t>{256, 'a', 257}));
  EXPECT_EQ(encoder.encode(pair("<s>a", "b"))[0].ids, (std::vector<int32_t>{256, 'a', 'b', 257}));
  EXPECT_EQ(encoder.encode(text_row("a"))[0].weights, (std::vector<float>{0, 1, 1}));
}

TEST_F(RowEncoderTest, DropsDoubledBos) {
  const auto made =
      template_of("{{ bos_token }}{% for m in messages %}{{ m.content }}<|turn|>{% endfor %}");
  const auto rows = RowEncoder(with_bos_.get(), made.get(), {})
                        .encode(chat({{"user", "<s>hi"}, {"assistant", "yes"}}));
  ASSERT_TRUE(rows[0].drop);
  EXPECT_EQ(rows[0].drop->code, "doubled_bos");
  const Row ids{
      .format = RowFormat::kTokens, .input_ids = {256, 256, 5}, .loss_weights = {0, 1, 1}};
  EXPECT_EQ(RowEncoder(with_bos_.get(), nullptr, {}).encode(ids)[0].drop.value().code,
            "doubled_bos");
}

TEST_F(RowEncoderTest, TakesTokensAsGiven) {
  const Row row{.format = RowFormat::kTokens, .input_ids = {5, 6, 7}, .loss_weights = {1, 0, 0.25}};
  const auto rows = RowEncoder(nullptr, nullptr, {.vocab_size = 8}).encode(row);
  EXPECT_EQ(rows[0].ids, row.input_ids);
  EXPECT_EQ(rows[0].weights, (std::vector<float>{0, 0, 0.25}));
  EXPECT_EQ(rows[0].trainable_tokens, 1);
  const auto bad = RowEncoder(nullptr, nullptr, {.vocab_size = 7}).encode(row);
  EXPECT_EQ(bad[0].drop.value().code, "token_id_out_of_range");
  EXPECT_NE(bad[0].drop->message.find("input_ids[2] is 7"), std::string::npos);
}

TEST_F(RowEncoderTest, NeedsATokenizerForText) {
  const auto rows = RowEncoder(nullptr, nullptr, {}).encode(text_row("abc"));
  EXPECT_EQ(rows[0].drop.value().code, "template_error");
}

TEST_F(RowEncoderTest, CutsTheEndOrTheBeginning) {
  const Row row = pair("abcd", "efghi");  // 10 ids with eos
  const auto right = encode(row, {.max_seq_length = 8, .truncation = Truncation::kRight});
  EXPECT_EQ(trained(*bytes_, right[0]), "efgh");
  EXPECT_EQ(right[0].ids.front(), 'a');
  EXPECT_EQ(right[0].truncated_tokens, 2);
  EXPECT_EQ(right[0].truncated_trainable_tokens, 2);
  const auto left = encode(row, {.max_seq_length = 8, .truncation = Truncation::kLeft});
  EXPECT_EQ(trained(*bytes_, left[0]), "efghi</s>");
  EXPECT_EQ(left[0].ids.front(), 'c');
  EXPECT_EQ(left[0].truncated_tokens, 2);
  EXPECT_EQ(left[0].truncated_trainable_tokens, 0);
  const auto with_bos =
      RowEncoder(with_bos_.get(), nullptr, {.max_seq_length = 8, .truncation = Truncation::kLeft})
          .encode(row);
  EXPECT_EQ(with_bos[0].ids.front(), 256);
  EXPECT_EQ(with_bos[0].ids.size(), 8u);
}

// method.md §12, C07: a row whose prompt fills the window becomes neither loss 0 nor nothing. It
// keeps the whole answer, or where that is long too, half a window of prompt and half of answer.
TEST_F(RowEncoderTest, TrainedTokensSurviveTheCutOfALongPrompt) {
  const auto one = [&](const Row& row) {
    const auto rows = encode(row, {.max_seq_length = 50});  // the default: RIGHT
    EXPECT_EQ(rows.size(), 1u);
    EXPECT_FALSE(rows[0].drop);
    EXPECT_EQ(rows[0].ids.size(), 50u);
    return rows[0];
  };
  const EncodedRow short_answer = one(pair(std::string(100, 'p'), "answer"));
  EXPECT_EQ(trained(*bytes_, short_answer), "answer</s>");
  EXPECT_EQ(short_answer.prompt_tokens, 43);
  EXPECT_EQ(short_answer.truncated_tokens, 57);
  EXPECT_EQ(short_answer.truncated_trainable_tokens, 0);
  const EncodedRow long_answer = one(pair(std::string(100, 'p'), std::string(100, 'a')));
  EXPECT_EQ(trained(*bytes_, long_answer), std::string(25, 'a'));
  EXPECT_EQ(long_answer.truncated_tokens, 151);
  EXPECT_EQ(long_answer.truncated_trainable_tokens, 76);
  // The whole prompt fits with half a window of answer: only the end goes.
  EXPECT_EQ(trained(*bytes_, one(pair(std::string(25, 'p'), std::string(100, 'a')))),
            std::string(25, 'a'));
  // Of a chat the last answer alone is trained; what follows it is not worth keeping.
  const auto turns = encode(
      chat({{"user", std::string(60, 'u')}, {"assistant", "yes"}, {"user", std::string(60, 'v')}}),
      {.max_seq_length = 50});
  EXPECT_EQ(trained(*bytes_, turns.at(0)), "yes<|turn|>");
  const auto with_bos = RowEncoder(with_bos_.get(), nullptr, {.max_seq_length = 50})
                            .encode(pair(std::string(100, 'p'), "answer"));
  EXPECT_EQ(with_bos.at(0).ids.front(), 256);
  EXPECT_EQ(trained(*with_bos_, with_bos[0]), "answer</s>");
}

// However a row is cut at the end, one target at least is left of those that it had.
TEST_F(RowEncoderTest, ATargetSurvivesWhereverItIs) {
  for (size_t size = 3; size < 24; ++size) {
    for (size_t target = 1; target < size; ++target) {
      Row row{.format = RowFormat::kTokens,
              .input_ids = std::vector<int32_t>(size, 5),
              .loss_weights = std::vector<float>(size, 0)};
      row.input_ids[target] = 7;
      row.loss_weights[target] = 1;
      for (int32_t limit = 2; limit < 12; ++limit) {
        const auto rows = encode(row, {.max_seq_length = limit});
        EXPECT_EQ(rows.at(0).trainable_tokens, 1) << size << " " << target << " " << limit;
        EXPECT_EQ(std::ranges::count(rows[0].ids, 7), 1);
      }
    }
  }
}

TEST_F(RowEncoderTest, DropsRowsThatTruncationLeavesWithoutTargets) {
  const auto rows =
      encode(chat({{"user", "u"}, {"assistant", "yes"}, {"user", std::string(95, 'v')}}),
             {.max_seq_length = 50, .truncation = Truncation::kLeft});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(rows[0].drop.value().code, "no_trainable_tokens");
  EXPECT_NE(
      rows[0].drop->message.find(
          " to 50 tokens left nothing to train: raise max_seq_length, or use truncation RIGHT"),
      std::string::npos)
      << rows[0].drop->message;
}

TEST_F(RowEncoderTest, ChunksPredictEveryTokenExactlyOnce) {
  std::string text(1000, 'x');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 26);
  for (const int32_t limit : {2, 16, 100, 334, 1000, 1001}) {
    const auto rows = encode(text_row(text), {.max_seq_length = limit});
    std::string predicted;
    for (const EncodedRow& row : rows) {
      EXPECT_LE(row.ids.size(), static_cast<size_t>(limit));
      EXPECT_EQ(row.weights[0], 0);
      EXPECT_EQ(row.truncated_tokens, 0);
      for (size_t i = 1; i < row.ids.size(); ++i) predicted += bytes_->token_bytes(row.ids[i]);
    }
    EXPECT_EQ(predicted, text.substr(1) + "</s>") << limit;
  }
}

TEST_F(RowEncoderTest, ChunksOfAChatWithoutTargetsAreLeftOut) {
  const auto rows = encode(chat({{"user", std::string(95, 'u')}, {"assistant", "yes"}}),
                           {.max_seq_length = 32, .truncation = Truncation::kChunk});
  ASSERT_EQ(rows.size(), 1u);
  EXPECT_EQ(trained(*bytes_, rows[0]), "yes<|turn|>");
}

TEST_F(RowEncoderTest, DropsLongRowsWithTruncationError) {
  const auto rows =
      encode(text_row("abcdef"), {.max_seq_length = 4, .truncation = Truncation::kError});
  EXPECT_EQ(rows[0].drop.value().code, "longer_than_context");
  EXPECT_FALSE(
      encode(text_row("abc"), {.max_seq_length = 4, .truncation = Truncation::kError})[0].drop);
}

TEST_F(RowEncoderTest, ReportsTheTemplatesComplaint) {
  const auto made = template_of("{{ raise_exception('no system role') }}");
  const auto rows =
      RowEncoder(bytes_.get(), made.get(), {}).encode(chat({{"user", "a"}, {"assistant", "b"}}));
  EXPECT_EQ(rows[0].drop.value().code, "template_error");
  EXPECT_NE(rows[0].drop->message.find("no system role"), std::string::npos);
}

TEST_F(RowEncoderTest, TrainsAnswersOfTemplatesThatNeedPrefixes) {
  const auto made = template_of(
      "{% for m in messages %}<{{ m.role }}>{{ m.content | upper if m.content.startswith('t') else "
      "m.content }}"
      "<|turn|>\n{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}");
  const auto rows =
      RowEncoder(bytes_.get(), made.get(), {}).encode(chat({{"user", "a"}, {"assistant", "tb"}}));
  EXPECT_EQ(trained(*bytes_, rows[0]), "TB<|turn|>");
}

}  // namespace
}  // namespace dex::text
