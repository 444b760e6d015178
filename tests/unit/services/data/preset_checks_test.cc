#include "services/data/preset_checks.h"

#include <gmock/gmock.h>

#include "services/data/code_text.h"
#include "services/data/dataset.h"
#include "tests/support/paths.h"
#include "tests/unit/services/data/files.h"
#include "tests/unit/services/text/fixtures.h"

namespace dex::data {
namespace {

using testing::HasSubstr;

TEST(CodeTextTest, KnowsCodeOfManyLanguages) {
  for (const char* code : {
           "def add(a, b):\n    return a + b\n",
           "# Adds.\n# Two numbers.\n# Of any kind.\nint add(int a, int b) {\n  return a + b;\n}",
           "SELECT name FROM users WHERE id = 3;",
           "for f in *.txt; do\n  echo \"${f}\"\ndone",
           "(define (square x)\n  (* x x))",
           "add :: Int -> Int\nadd x = x + 1",
           "<ul>\n  <li>one</li>\n</ul>",
           "fn main() {\n    println!(\"{}\", a::b(1));\n}",
           "Here is the function.\nIt adds.\nIt is short.\nUse it.\nGood luck.\n```python\nx\n```",
       }) {
    EXPECT_TRUE(looks_like_code(code)) << code;
  }
}

TEST(CodeTextTest, KnowsProseThatSpeaksOfCode) {
  for (const char* prose : {
           "",
           "\n \n",
           "The import of the return value, if any, is what the class is for.",
           "See printf(3) and open(2).\nFile(s) named here are read.\nOthers are not.",
           "NAME\nbasename - strip directory and suffix\n\nSYNOPSIS\nbasename NAME [SUFFIX]\n\n"
           "-a, --multiple\n    support multiple arguments\n",
           "== Guidelines\n\nHere are some (short) guidelines, as promised:\n\n* be brief\n* be "
           "kind",
           "Der Mensch ist frei geboren,\nund überall liegt er in Ketten.",
           "A long text.\nWith one example:\n    x = 1\nAnd nothing else.\nThe end.",
       }) {
    EXPECT_FALSE(looks_like_code(prose)) << prose;
  }
}

// The findings of the rows of a file under a preset, with bytes as tokens.
class PresetChecksTest : public testing::Test {
 protected:
  std::vector<Finding> run(const std::string& preset, const std::string& file,
                           int32_t max_seq_length = 0) {
    const auto tokenizer = text::byte_tokenizer();
    LoadOptions options;
    options.preset = preset;
    options.encoder.max_seq_length = max_seq_length;
    const auto loaded =
        load_encoded(folder_.write("a.jsonl", file), tokenizer.get(), nullptr, options);
    EXPECT_TRUE(loaded.ok()) << loaded.status().to_string();
    for (const Finding& finding : loaded->findings) {
      EXPECT_EQ(finding.severity, Severity::kWarning);
      EXPECT_EQ(finding.layer, Layer::kTokens);
      EXPECT_EQ(finding.line, 0);
      EXPECT_NE(finding.hint, "");
    }
    return loaded->findings;
  }
  static std::string rows_of(const std::string& language, int count) {
    std::string file;
    for (int i = 0; i < count; ++i) {
      file += R"({"text": "row )" + std::to_string(i) + "\"" +
              (language.empty() ? "" : R"(, "language": ")" + language + "\"") + "}\n";
    }
    return file;
  }

  ScratchFolder folder_;
};

TEST_F(PresetChecksTest, OneLanguageForMultilingual) {
  const auto found = run("multilingual@1", rows_of("en", 19) + rows_of("de", 1) + rows_of("", 20));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "preset_language_share");
  EXPECT_THAT(found[0].message,
              HasSubstr("19 of the 20 rows that carry \"language\" carry \"en\""));
  EXPECT_TRUE(run("multilingual", rows_of("en", 18) + rows_of("de", 2)).empty());  // 90 %
  EXPECT_TRUE(run("small", rows_of("en", 20)).empty());
}

TEST_F(PresetChecksTest, NoLanguageForMultilingual) {
  const auto found = run("multilingual", rows_of("", 20));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "preset_language_share");
  EXPECT_THAT(found[0].message, HasSubstr("no row carries \"language\""));
}

TEST_F(PresetChecksTest, ShortRowsForLongText) {
  const std::string file = rows_of("", 10);  // "row 7" and the end of sequence: 6 tokens
  const auto found = run("long_text@1", file, 13);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "preset_short_rows");
  EXPECT_THAT(found[0].message, HasSubstr("at most 6 tokens"));
  EXPECT_TRUE(run("long_text", file, 12).empty());            // half is enough
  EXPECT_TRUE(run("long_text", file).empty());                // no limit, nothing to be short of
  EXPECT_TRUE(run("code", rows_of("", 10), 13).size() == 1);  // its own check only
}

TEST_F(PresetChecksTest, CodeIsJudgedByWhatIsTrained) {
  const std::string pair = R"({"prompt": "Add two numbers.", "completion": "x = a + b;"})"
                           "\n";
  const std::string talk = R"({"prompt": "x = a + b;", "completion": "That adds two numbers."})"
                           "\n";
  EXPECT_TRUE(run("code", pair + talk + talk).empty());  // a third
  const auto found = run("code", pair + talk + talk + talk);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].code, "preset_not_code");
  EXPECT_THAT(found[0].message, HasSubstr("1 of 4 rows look like source code"));
  EXPECT_TRUE(run("code", R"({"input_ids": [1, 2], "labels": [1, 2]})"
                          "\n")
                  .empty());
}

TEST_F(PresetChecksTest, CodeInChatsIsTheAssistants) {
  PresetChecks checks("code");
  Row row;
  row.content.format = text::RowFormat::kChat;
  row.content.messages = {{.role = "user", .content = "x = a + b;"},
                          {.role = "assistant", .content = "That adds two numbers."}};
  checks.add(row);
  Statistics rows;
  rows.add(row);
  Findings findings;
  checks.finish(rows, {}, 0, findings);
  EXPECT_EQ(findings.counts().count("preset_not_code"), 1u);
}

// The data sets that deploy/setup makes suit their own preset and neither of the others.
TEST_F(PresetChecksTest, TheDataSetsOfThePresetsAreToldApart) {
  for (const std::string data : {"code", "long_text", "multilingual"}) {
    PresetChecks checks("code");
    Statistics rows;
    auto reader = RowReader::open((support::deps_dir() / "data/").string() + data + ".train.jsonl");
    ASSERT_TRUE(reader.ok()) << reader.status().to_string() << "; run deploy/setup/all";
    while (true) {
      const auto row = (*reader)->next();
      ASSERT_TRUE(row.ok());
      if (!*row) break;
      checks.add(**row);
      rows.add(**row);
    }
    Findings code, languages;
    checks.finish(rows, {}, 0, code);
    EXPECT_EQ(code.counts().contains("preset_not_code"), data != "code") << data;
    PresetChecks("multilingual").finish(rows, {}, 0, languages);
    EXPECT_EQ(languages.counts().contains("preset_language_share"), data != "multilingual") << data;
  }
}

}  // namespace
}  // namespace dex::data
