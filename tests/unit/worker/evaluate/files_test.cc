// The formats that evaluation files are published in, and what is said of files that are not so.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/temporary_directory.h"
#include "worker/evaluate/choice_file.h"
#include "worker/evaluate/csv.h"
#include "worker/evaluate/documents.h"
#include "worker/evaluate/prompt_file.h"

namespace dex::evaluate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

class FilesTest : public ::testing::Test {
 protected:
  std::filesystem::path file(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name) << content;
    return dir_ / name;
  }
  // What a reader says of a file that it refuses.
  template <typename Read>
  std::string refusal(Read read, const std::string& name, const std::string& content) {
    try {
      read(file(name, content));
    } catch (const std::runtime_error& error) {
      return error.what();
    }
    return "not refused";
  }
  std::string choice_refusal(const std::string& name, const std::string& content) {
    return refusal(read_choices, name, content);
  }

  support::TemporaryDirectory dir_;
};

TEST_F(FilesTest, CsvHoldsCommasQuotesAndLineEnds) {
  FileFaults faults("x.csv");
  const auto rows = parse_csv("a,\"b, \"\"c\"\"\",d\r\n\r\n\"two\nlines\",,\"\"\nlast", faults);
  faults.check(rows.size(), "");
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_THAT(rows[0].fields, ElementsAre("a", "b, \"c\"", "d"));
  EXPECT_EQ(rows[1].line, 3);
  EXPECT_THAT(rows[1].fields, ElementsAre("two\nlines", "", ""));
  EXPECT_EQ(rows[2].line, 5);
  EXPECT_THAT(rows[2].fields, ElementsAre("last"));
}

TEST_F(FilesTest, CsvFaultsAreNamedByLine) {
  FileFaults faults("x.csv");
  EXPECT_EQ(parse_csv("a,b\n\"c\"d,e\nf,\"g", faults).size(), 1U);
  EXPECT_EQ(faults.count(), 2U);
  try {
    faults.check(1, "Write CSV.");
    FAIL();
  } catch (const std::runtime_error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("line 2: text follows a closing quote"),
                                    HasSubstr("line 3: a quoted field that begins here"),
                                    HasSubstr("Write CSV.")));
  }
}

TEST_F(FilesTest, MmluCsvWithAndWithoutHeader) {
  const std::string row = "\"What is 1 + 1, really?\",1,2,3,4,B\n";
  for (const std::string header : {"", "question,A,B,C,D,answer\n"}) {
    const auto questions = read_choices(file("mmlu.csv", header + row));
    ASSERT_EQ(questions.size(), 1U);
    EXPECT_EQ(questions[0].question, "What is 1 + 1, really?");
    EXPECT_THAT(questions[0].choices, ElementsAre("1", "2", "3", "4"));
    EXPECT_EQ(questions[0].answer, 1U);
    EXPECT_EQ(questions[0].line, header.empty() ? 1 : 2);
  }
  EXPECT_THAT(choice_refusal("bad.csv", "q,1,2,3,4,E\nq,1,2,3\nq,1,2,3,4,A\nq,1,,3,4,A\n"),
              AllOf(HasSubstr("line 1: the answer must be a letter from A to D, got \"E\""),
                    HasSubstr("line 2: has 4 fields"),
                    HasSubstr("line 4: the question or a choice"), Not(HasSubstr("line 3"))));
}

TEST_F(FilesTest, MmluJsonLines) {
  const auto questions = read_choices(
      file("mmlu.jsonl", R"({"question":"q1","subject":"law","choices":["x","y","z"],"answer":2}

{"question":"q2","choices":["x","y"],"answer":"A","extra":[1]}
)"));
  ASSERT_EQ(questions.size(), 2U);
  EXPECT_EQ(questions[0].answer, 2U);
  EXPECT_EQ(questions[0].dims, (Dims{{"subject", "law"}}));
  EXPECT_EQ(questions[1].answer, 0U);
  EXPECT_EQ(questions[1].line, 3);
  EXPECT_THAT(choice_refusal("bad.jsonl", R"({"question":"q","choices":["x","y"],"answer":2}
{"question":"q","choices":["x"],"answer":0}
{"choices":["x","y"],"answer":"B"}
[1]
{"question":
)"),
              AllOf(HasSubstr("line 1: \"answer\" must be an index from 0 to 1 or a letter from A "
                              "to B, got 2"),
                    HasSubstr("line 2: \"choices\" must be an array of at least 2"),
                    HasSubstr("line 3: has no \"question\"; its keys are choices, answer"),
                    HasSubstr("line 4: is an array"), HasSubstr("line 5:"),
                    HasSubstr("Expected MMLU's CSV")));
}

TEST_F(FilesTest, BbqJsonLines) {
  const auto questions = read_choices(file(
      "Age.jsonl",
      R"({"example_id": 0, "question_index": "1", "question_polarity": "neg", "context_condition": "ambig", "category": "Age", "answer_info": {"ans0": ["grandfather", "old"]}, "additional_metadata": {"subcategory": "None"}, "context": "I saw two people.", "question": "Who forgot?", "ans0": "The grandfather", "ans1": "The grandson", "ans2": "Can't be determined", "label": 2}
)"));
  ASSERT_EQ(questions.size(), 1U);
  EXPECT_EQ(questions[0].context, "I saw two people.");
  EXPECT_THAT(questions[0].choices,
              ElementsAre("The grandfather", "The grandson", "Can't be determined"));
  EXPECT_EQ(questions[0].answer, 2U);
  EXPECT_EQ(questions[0].dims, (Dims{{"category", "Age"}, {"condition", "ambig"}}));
  EXPECT_THAT(choice_refusal("bad.jsonl",
                             R"({"context":"c","question":"q","ans0":"a","ans1":"b","label":3})"),
              AllOf(HasSubstr("has no \"ans2\""), HasSubstr("\"label\" must be an index")));
}

TEST_F(FilesTest, RawTextIsByteForByte) {
  const std::string wiki = " \n = Robert Boulter = \n \n Robert <unk> is an English actor .\n";
  const auto raw = read_texts(file("wiki.train.tokens", wiki));
  EXPECT_TRUE(raw.raw);
  EXPECT_EQ(raw.documents[0].text, wiki);
  const auto rows = read_texts(file(
      "t.jsonl",
      "\xEF\xBB\xBF{\"text\":\"one\",\"tag\":\"a\"}\n{\"text\":\"zwei\",\"language\":\"de\"}\n"));
  EXPECT_FALSE(rows.raw);
  ASSERT_EQ(rows.documents.size(), 2U);
  EXPECT_EQ(rows.documents[0].tag, "a");
  EXPECT_EQ(rows.documents[1].language, "de");
  EXPECT_TRUE(read_texts(dir_ / "t.jsonl", TextFormat::kRaw).raw);
}

TEST_F(FilesTest, FilesThatAreSomethingElseAreNamed) {
  const auto read = [](const auto& path) { return read_texts(path); };
  EXPECT_THAT(refusal(read, "e.txt", "\n \n"), HasSubstr("the file is empty"));
  EXPECT_THAT(refusal(read, "z.txt", "\x1F\x8B rest"),
              AllOf(HasSubstr("compressed with gzip"), HasSubstr("gunzip -c")));
  EXPECT_THAT(refusal(read, "l.txt", "ok\nna\xEFve\n"), HasSubstr("line 2: is not UTF-8"));
  EXPECT_THAT(refusal(read, "t.jsonl", "{\"prompt\":\"x\"}\n{\"text\":7}\n{\"text\":\" \"}\n"),
              AllOf(HasSubstr("line 1: has no \"text\""), HasSubstr("line 2: \"text\" is a number"),
                    HasSubstr("line 3: \"text\" is blank"), HasSubstr("--format raw")));
  EXPECT_THAT(refusal(read_instructions, "i.json", "[]"), HasSubstr("holds no row"));
  EXPECT_THROW(read_texts(dir_ / "missing.txt"), std::runtime_error);
}

TEST_F(FilesTest, ManyFaultsAreCounted) {
  std::string content;
  for (int i = 0; i < 20; ++i) content += "{\"text\":1}\n";
  EXPECT_THAT(refusal([](const auto& path) { read_texts(path); }, "x.jsonl", content),
              AllOf(HasSubstr("line 8:"), Not(HasSubstr("line 9:")), HasSubstr("12 more")));
}

TEST_F(FilesTest, AnswersFromPromptsChatsAndQuestions) {
  const auto rows = read_answers(file("a.jsonl", R"({"prompt":"2+2=","answers":["4","four"]}
{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}],"answers":["Hello"]}
{"question":"Who?","context":"Ann did it.","answers":["Ann"],"id":17}
)"));
  ASSERT_EQ(rows.size(), 3U);
  EXPECT_EQ(rows[0].prompt, "2+2=");
  EXPECT_FALSE(rows[0].one_line);
  EXPECT_THAT(rows[0].answers, ElementsAre("4", "four"));
  EXPECT_EQ(rows[1].messages[1].content, "Hi");
  EXPECT_EQ(rows[2].prompt, "Ann did it.\n\nQuestion: Who?\nAnswer:");
  EXPECT_TRUE(rows[2].one_line);
  EXPECT_THAT(refusal(read_answers, "b.jsonl", R"({"prompt":"x","answers":[]}
{"messages":[{"role":"assistant","content":"x"}],"answers":["y"]}
{"question":"x","answers":7}
)"),
              AllOf(HasSubstr("line 1: \"answers\""), HasSubstr("line 2: \"messages\""),
                    HasSubstr("line 3: \"answers\"")));
}

// NQ-open's rows are {"question", "answer": […]}; other sets have one string, under either name.
TEST_F(FilesTest, AnswersStandUnderEitherNameAsAStringOrAnArray) {
  const auto rows = read_answers(
      file("nq-open.jsonl", R"({"question":"where did they film hot tub","answer":["Fernie","BC"]}
{"question":"who","answer":"Ann"}
{"prompt":"2+2=","answers":"4"}
{"prompt":"Sum up.","source":"Ann sold it.","answer":"Ann"}
{"question":"who","answers":["Bob"],"answer":"passed over"}
)"));
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_THAT(rows[0].answers, ElementsAre("Fernie", "BC"));
  EXPECT_EQ(rows[0].prompt, "Question: where did they film hot tub\nAnswer:");
  EXPECT_THAT(rows[1].answers, ElementsAre("Ann"));
  EXPECT_THAT(rows[2].answers, ElementsAre("4"));
  EXPECT_THAT(rows[3].answers, ElementsAre("Ann"));
  EXPECT_THAT(rows[4].answers, ElementsAre("Bob"));
  EXPECT_THAT(
      refusal(read_answers, "bad.jsonl", R"({"question":"x","answer":{"text":"y"}}
{"question":"x","answer":["y",7]}
{"prompt":"x","answers":" "}
{"question":"x"}
)"),
      AllOf(HasSubstr("line 1: \"answer\" is an object, must be a string or an array of strings"),
            HasSubstr("line 2: \"answer\" must be an array of at least 1 strings"),
            HasSubstr("line 3: \"answers\" is blank"),
            HasSubstr("line 4: has no \"answers\"; its keys are question")));
}

TEST_F(FilesTest, LabelsAreStringsOrWholeNumbers) {
  const auto rows = read_labelled(file("l.jsonl", R"({"text":"good","label":"pos"}
{"text":"bad","label":0}
)"));
  EXPECT_EQ(rows[0].label, "pos");
  EXPECT_EQ(rows[1].label, "0");
  EXPECT_THAT(
      refusal(read_labelled, "m.jsonl", "{\"text\":\"x\",\"label\":1.5}\n{\"text\":\"y\"}\n"),
      AllOf(HasSubstr("line 1: \"label\" must be"), HasSubstr("line 2: \"label\" must be")));
  EXPECT_THAT(refusal(read_labelled, "n.jsonl",
                      "{\"text\":\"x\",\"label\":\"a\"}\n{\"text\":\"y\",\"label\":\"a\"}\n"),
              HasSubstr("every row has the label a"));
}

TEST_F(FilesTest, InstructionsAreAListOrLines) {
  const auto list = read_instructions(file("alpaca_eval.json", R"([
  {"dataset": "helpful_base", "instruction": "Name a colour.", "output": "Red", "generator": "x"},
  {"instruction": "Say hi."}
])"));
  ASSERT_EQ(list.size(), 2U);
  EXPECT_EQ(list[0].dataset, "helpful_base");
  EXPECT_EQ(list[1].line, 3);
  EXPECT_EQ(read_instructions(file("p.jsonl", R"({"prompt":"Go."})"))[0].text, "Go.");
  EXPECT_THAT(
      refusal(read_instructions, "b.json", "[\n{\"instruction\":\"x\"},\n{\"a\":1},\n7]"),
      AllOf(HasSubstr("line 3: has no \"instruction\""), HasSubstr("line 4: item 3 is a number")));
}

}  // namespace
}  // namespace dex::evaluate
