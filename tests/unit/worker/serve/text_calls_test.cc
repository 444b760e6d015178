#include "worker/serve/text_calls.h"

#include <gmock/gmock.h>

#include "tests/unit/services/text/fixtures.h"

namespace dex::serve {
namespace {

using dex::internal::v1::EngineCommand;
using dex::internal::v1::EngineReport;
using ::testing::ElementsAreArray;

// The test model's own tokenizer and template.
class TextCallsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = TextModel::load(text::model_folder());
    ASSERT_TRUE(loaded.ok()) << loaded.status().to_string();
    text_ = std::move(loaded).value();
    limits_.context_tokens = 128;
  }
  EngineReport::Text answer(const EngineCommand::Text& in) {
    EngineReport::Text out;
    answer_text(in, text_, limits_, out);
    return out;
  }

  TextModel text_;
  RequestLimits limits_;
};

TEST_F(TextCallsTest, IdsAreThoseThatAGenerationReads) {
  EngineCommand::Text in;
  in.set_request(7);
  in.mutable_tokenize()->set_text("Hello <|im_end|> wörld");
  const auto out = answer(in);
  EXPECT_EQ(out.request(), 7U);
  EXPECT_EQ(out.tokenize().max_model_len(), 128);
  EXPECT_THAT(out.tokenize().ids(),
              ElementsAreArray(text_.encode_prompt(in.tokenize().text()).value()));

  auto& message = *in.mutable_tokenize()->mutable_chat()->add_messages();
  message.set_role("user");
  message.set_content("hi");
  const std::vector<text::Message> messages = {{.role = "user", .content = "hi"}};
  EXPECT_THAT(answer(in).tokenize().ids(), ElementsAreArray(text_.encode_chat(messages).value()));
}

TEST_F(TextCallsTest, IdsBecomeTheirTextAgain) {
  EngineCommand::Text in;
  const std::string text = "Hello <|im_end|> wörld\n";
  const std::vector<int32_t> ids = text_.tokenizer->encode(text, false).value();
  in.mutable_detokenize()->mutable_ids()->Add(ids.begin(), ids.end());
  EXPECT_EQ(answer(in).detokenize().text(), text);
  in.mutable_detokenize()->add_ids(1 << 30);
  EXPECT_TRUE(answer(in).has_error()) << "an id outside the vocabulary";
}

TEST_F(TextCallsTest, TellsSpecialTokensAndTemplate) {
  EngineCommand::Text in;
  in.mutable_info();
  const auto info = answer(in).info();
  EXPECT_EQ(info.eos_token(), "<|im_end|>");
  EXPECT_EQ(info.chat_template(), text_.chat_template->source());
  EXPECT_EQ(info.tokenizer_sha256(), text_.tokenizer->sha256());
}

TEST_F(TextCallsTest, RefusesWithTheField) {
  EngineCommand::Text in;
  in.mutable_tokenize();
  EXPECT_EQ(answer(in).error().reason(), "MISSING_FIELD");
  in.mutable_tokenize()->set_text(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(answer(in).error().reason(), "CONTEXT_LENGTH_EXCEEDED");
  EXPECT_EQ(answer(in).error().field(), "text");
  // A role is text of the caller's too.
  in.mutable_tokenize()->mutable_chat()->add_messages()->set_role(std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(answer(in).error().reason(), "CONTEXT_LENGTH_EXCEEDED");
  text_ = TextModel();
  in.mutable_tokenize()->set_text("x");
  EXPECT_EQ(answer(in).error().reason(), "NOT_SUPPORTED");
  EXPECT_EQ(answer(EngineCommand::Text()).error().reason(), "NOT_SUPPORTED");
}

}  // namespace
}  // namespace dex::serve
