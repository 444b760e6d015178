// Files that evaluations are made on: MMLU's CSV, questions, answers, labelled texts, instructions,
// plain texts.
#include "tests/fuzz/target.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "worker/evaluate/choice_file.h"
#include "worker/evaluate/documents.h"
#include "worker/evaluate/prompt_file.h"

namespace dex::fuzz {

Corpus corpus() {
  return {
      {support::content_of(support::source_dir() / "tests/data/evaluate/mmlu.csv"),
       "question,A,B,C,D,answer\r\nq,\"a \"\"b\"\"\",\"c\nd\",e,f,C\r\n",
       R"({"question": "q", "choices": ["a", "b", "c"], "answer": 1, "subject": "s"})"
       "\n"
       R"({"question": "q", "choices": ["a", "b"], "answer": "B"})",
       R"({"context": "c", "question": "q", "ans0": "a", "ans1": "b", "ans2": "d", "label": 2, "category": "x", "context_condition": "ambig"})",
       R"({"prompt": "p", "answers": ["a", "b"]})"
       "\n"
       R"({"messages": [{"role": "user", "content": "u"}], "answers": "a", "source": "s"})"
       "\n"
       R"({"question": "q", "context": "c", "answer": ["x"]})",
       "{\"text\": \"t\", \"label\": \"x\"}\n{\"text\": \"u\", \"label\": 7}\n",
       "[{\"instruction\": \"i\", \"dataset\": \"d\"},\n {\"prompt\": \"j\"}]",
       "\xEF\xBB\xBF"
       "plain text\n\n = Title = \n",
       "\"never closed", "a,\"b\"c\n", "\f\v x"},
      {"\"question\"", "\"choices\"", "\"answer\"", "\"answers\"", "\"messages\"", "\"ans0\"",
       "\"label\"", "\"text\"", "\"instruction\"", "\"source\"", "\"\"", "\",\"", "\r\n", ",A\n",
       "\r", "\n\n", "[", "{}"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  using namespace dex::evaluate;
  const auto path = file_with(view(data, size), "task.jsonl");
  parse([&] {
    for (const ChoiceQuestion& question : read_choices(path)) {
      require(question.choices.size() >= 2 && question.answer < question.choices.size(),
              "a right answer among the choices");
      require(question.line >= 1, "a line");
    }
  });
  parse([&] {
    for (const AnswerQuestion& question : read_answers(path)) {
      require(question.prompt.empty() != question.messages.empty(), "a prompt or a chat");
      require(!question.answers.empty() || !question.source.empty(),
              "something to hold it against");
    }
  });
  parse([&] { require(read_labelled(path).size() >= 2, "two labels need two rows"); });
  parse([&] { require(!read_instructions(path).empty(), "a row at least"); });
  parse([&] { require(!read_texts(path).documents.empty(), "a text at least"); });
  parse(
      [&] { require(read_texts(path, TextFormat::kRaw).documents.size() == 1, "the whole file"); });
  return 0;
}
