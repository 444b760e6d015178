#include "services/text/chat_template.h"

#include <ctime>

#include "tests/unit/services/text/fixtures.h"

namespace dex::text {
namespace {

constexpr const char* kPlain =
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|turn|>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}";

// What a message's span covers.
std::string words(const RenderedChat& chat, size_t message) {
  const Span span = chat.spans.at(message).value();
  return chat.text.substr(span.begin, span.end - span.begin);
}

TEST(ChatTemplateTest, FindsEveryMessageEvenAmongEqualWords) {
  const auto made = template_of(kPlain);
  const std::vector<Message> messages{
      {"user", "same"}, {"assistant", "same"}, {"user", "<assistant>"}, {"assistant", "same"}};
  const auto chat = made->render_with_spans(messages);
  ASSERT_TRUE(chat.ok()) << chat.status().to_string();
  for (size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(words(*chat, i), messages[i].content);
  EXPECT_EQ(chat->spans[3]->begin, chat->text.rfind("same"));
}

TEST(ChatTemplateTest, FindsTrimmedWords) {
  const auto made = template_of("{% for m in messages %}[{{ m.content | trim }}]{% endfor %}");
  const std::vector<Message> messages{{"user", " a "}, {"assistant", "\n b c\t"}};
  const auto chat = made->render_with_spans(messages);
  ASSERT_TRUE(chat.ok()) << chat.status().to_string();
  EXPECT_EQ(words(*chat, 1), "b c");
}

TEST(ChatTemplateTest, FallsBackToPrefixesWhenTheTemplateLooksIntoTheWords) {
  // Upper-cases what begins with "think:", as reasoning models rewrite their thoughts.
  const auto made = template_of(
      "{% for m in messages %}<{{ m.role }}>{% if m.content.startswith('think:') %}{{ m.content | "
      "upper }}"
      "{% else %}{{ m.content }}{% endif %}<|turn|>\n{% endfor %}{% if add_generation_prompt "
      "%}<assistant>{% endif %}");
  const std::vector<Message> messages{{"user", "x"}, {"assistant", "think: y"}};
  const auto chat = made->render_with_spans(messages);
  ASSERT_TRUE(chat.ok()) << chat.status().to_string();
  EXPECT_TRUE(chat->spans[1]->whole_turn);
  EXPECT_EQ(words(*chat, 1), "THINK: Y<|turn|>\n");
}

TEST(ChatTemplateTest, RefusesChatsWhoseAnswersCannotBeFound) {
  // Leaves out all but the last message's words and counts the messages first, so no prefix fits
  // either.
  const auto made = template_of("{{ messages | length }}{{ messages[-1].content }}");
  const std::vector<Message> messages{{"user", "x"}, {"assistant", "y"}, {"user", "z"}};
  const auto chat = made->render_with_spans(messages);
  ASSERT_FALSE(chat.ok());
  EXPECT_EQ(chat.status().reason(), "TEMPLATE_FAILED");
}

TEST(ChatTemplateTest, ShowsDeveloperAsSystemWhereTheTemplateDoesNotKnowIt) {
  const std::vector<Message> messages{{"developer", "d"}};
  EXPECT_EQ(*template_of(kPlain)->render(messages, false), "<system>d<|turn|>");
  const auto knows = template_of(
      "{% if messages[0].role == 'developer' %}dev:{% endif %}{{ messages[0].content }}");
  EXPECT_EQ(*knows->render(messages, false), "dev:d");
}

TEST(ChatTemplateTest, PassesOnTheTemplatesOwnComplaint) {
  const auto made = template_of("a\n{{ raise_exception('roles must alternate') }}");
  const auto text = made->render({}, false);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.status().reason(), "TEMPLATE_FAILED");
  EXPECT_NE(text.status().message().find("line 2: roles must alternate"), std::string::npos)
      << text.status().message();
}

TEST(ChatTemplateTest, NamesTheLineOfASyntaxError) {
  const auto made = ChatTemplate::from_source("ok\n{% if %}", {});
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.status().message().find("line 2"), std::string::npos) << made.status().message();
}

TEST(ChatTemplateTest, StopsTemplatesThatLoopOrGrow) {
  const std::clock_t start = std::clock();  // of the processor: other work must not fail this
  for (const char* source : {
           "{% for a in range(100000) %}{% for b in range(100000) %}{% set c = a * b %}{% endfor "
           "%}{% endfor %}",
           "{% for a in range(100000) %}{{ 'x' * 100000 }}{% endfor %}",
           "{% set ns = namespace(s='x') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% "
           "endfor %}",
           "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
           "{{ 'x' * 10000000000 }}",
           "{{ range(10000000000) | list | length }}",
       }) {
    const auto text = template_of(source)->render({}, false);
    EXPECT_FALSE(text.ok()) << source;
    EXPECT_EQ(text.status().reason(), "TEMPLATE_FAILED");
  }
  EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC);
}

TEST(ChatTemplateTest, RefusesDeeplyNestedSource) {
  std::string source;
  for (int i = 0; i < 100000; ++i) source += "{% if true %}";
  EXPECT_FALSE(ChatTemplate::from_source(source, {}).ok());
  EXPECT_FALSE(ChatTemplate::from_source("{{ " + std::string(100000, '(') + " }}", {}).ok());
}

TEST(ChatTemplateTest, LongChatsRender) {
  std::vector<Message> messages;
  for (int i = 0; i < 5000; ++i) {
    messages.push_back({i % 2 ? "assistant" : "user", std::string(1000, 'a')});
  }
  const auto chat = real_template().render_with_spans(messages);
  ASSERT_TRUE(chat.ok()) << chat.status().to_string();
  EXPECT_EQ(words(*chat, 4999), messages[4999].content);
}

TEST(ChatTemplateTest, SaysWhatIsMissingInTheFolder) {
  const auto missing = ChatTemplate::load(testing::TempDir());
  ASSERT_FALSE(missing.ok());
  EXPECT_NE(missing.status().message().find("chat_template.jinja"), std::string::npos);
}

}  // namespace
}  // namespace dex::text
