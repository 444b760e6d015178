#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/small_job.h"
#include "tests/support/paths.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;

constexpr const char* kModel = "smollm2-135m-instruct";

// One platform for all: nothing here may leave anything behind.
class BadInputTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data");
    platform_->start();
    file_ = new std::string(platform_->upload_rows("code", "train", 20));
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    delete file_;
  }

  static Outcome upload(const std::string& name, const std::string& bytes) {
    const auto path = *directory_ / name;
    std::ofstream(path, std::ios::binary) << bytes;
    return platform_->ctl({"files", "upload", path});
  }
  static Outcome create(std::vector<std::string> more) {
    std::vector<std::string> args = {"jobs", "create", "--yes"};
    args.insert(args.end(), more.begin(), more.end());
    return platform_->ctl(args);
  }
  static std::vector<std::string> good(std::vector<std::string> more) {
    std::vector<std::string> args = {"--model", kModel,        "--training-file",
                                     *file_,    "--max-steps", "4"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
  }
  void TearDown() override {
    EXPECT_EQ(platform_->ctl({"jobs", "list"}).json().at("jobs").size(), 0u)
        << "a refused job was stored";
  }

  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static std::string* file_;
};
support::TemporaryDirectory* BadInputTest::directory_ = nullptr;
RunningPlatform* BadInputTest::platform_ = nullptr;
std::string* BadInputTest::file_ = nullptr;

std::string rows(const std::string& line, int count = 12) {
  std::string text;
  for (int i = 0; i < count; ++i) text += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  return text + line;
}

struct BadFile {
  const char* name;
  std::string bytes;
  const char* code;
  const char* line;
};

TEST_F(BadInputTest, FilesAreRefusedByCodeAndLine) {
  std::string utf16 = "\xff\xfe";
  for (const char c : std::string("{\"text\": \"a\"}\n")) utf16 += std::string{c, '\0'};
  const BadFile cases[] = {
      {"prose.txt", "This is not JSONL.\nNeither is this.\n", "invalid_json", "line 1"},
      {"long.jsonl", rows("{\"text\": \"" + std::string(10 << 20, 'x') + "\"}\n"), "line_too_long",
       "line 13"},
      {"latin1.jsonl", rows("{\"text\": \"caf\xe9\"}\n"), "invalid_utf8", "line 13"},
      {"utf16.jsonl", utf16, "encoding_utf16", "file"},
      {"empty.jsonl", "", "empty_file", "file"},
      {"type.jsonl", rows("{\"text\": 7}\n"), "wrong_type", "line 13"},
  };
  for (const auto& test : cases) {
    const Outcome outcome = upload(test.name, test.bytes);
    EXPECT_EQ(outcome.code, 3) << test.name << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr(test.code)) << test.name;
    EXPECT_THAT(outcome.err, HasSubstr(test.line)) << test.name;
    const auto file = outcome.json();
    EXPECT_EQ(file.at("state"), "FILE_STATE_INVALID") << test.name;
    const Outcome job = create({"--model", kModel, "--training-file", file.at("id")});
    EXPECT_EQ(job.code, 3);
    EXPECT_THAT(job.err, HasSubstr("FILE_INVALID"));
  }
  const Outcome odd = upload("unknown_key.jsonl", rows("{\"text\": \"a\", \"colour\": 1}\n"));
  EXPECT_EQ(odd.code, 0);
  EXPECT_THAT(odd.err, HasSubstr("unknown_key"));
}

TEST_F(BadInputTest, JobsAreRefusedByFieldAndValue) {
  const std::pair<std::vector<std::string>, std::vector<const char*>> cases[] = {
      {good({"--preset", "python"}), {"UNKNOWN_PRESET", "python", "multilingual"}},
      {good({"--learning-rate", "0"}), {"learning_rate", "got 0"}},
      {good({"--learning-rate", "-1e-4"}), {"learning_rate", "above 0"}},
      {good({"--learning-rate", "nan"}), {"learning_rate", "nan"}},
      {good({"--max-seq-length", "9000"}), {"max_seq_length", "8192"}},
      {good({"--set", "hyperparameters.learnig_rate=1"}), {"learnig_rate", "learning_rate"}},
      {good({"--preset", "code", "--set", "dex.lambda.learn_init=0.5"}),
       {"UNUSED_FIELD", "learn_init"}},
      {{"--model", "gpt-5", "--training-file", *file_}, {"MODEL_NOT_FOUND", "gpt-5"}},
      {{"--model", kModel, "--training-file", "file-00000000000000000000000000"},
       {"RESOURCE_NOT_FOUND"}},
  };
  for (const auto& [args, parts] : cases) {
    const Outcome outcome = create(args);
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    for (const char* part : parts) EXPECT_THAT(outcome.err, HasSubstr(part));
  }
}

TEST_F(BadInputTest, GenerationsAreRefusedByName) {
  const auto generate = [](const std::string& model, const std::string& prompt) {
    return platform_->ctl({"generate", model, "--prompt", prompt, "--max-tokens", "4"});
  };
  const Outcome unknown =
      generate("ft:smollm2-135m-instruct:default:x:00000000000000000000000000", "hello");
  EXPECT_EQ(unknown.code, 3) << unknown.err;
  EXPECT_THAT(unknown.err, HasSubstr("MODEL_NOT_FOUND"));
  std::string prompt;
  for (int i = 0; i < 9000; ++i) prompt += "word ";
  const Outcome long_prompt = generate(kModel, prompt);
  EXPECT_EQ(long_prompt.code, 3) << long_prompt.err;
  EXPECT_THAT(long_prompt.err, HasSubstr("CONTEXT_LENGTH_EXCEEDED"));
  EXPECT_THAT(long_prompt.err, HasSubstr("8192"));
}

// A base whose weights are cut off: dexd says so and ends, and leaves nothing running.
TEST(BrokenBaseTest, IsNamedAtTheStart) {
  namespace fs = std::filesystem;
  const support::TemporaryDirectory directory;
  const fs::path models = support::deps_dir() / "models", folder = directory / kModel;
  fs::create_directory(folder);
  for (const auto& entry : fs::directory_iterator(models / kModel)) {
    fs::create_symlink(entry.path(), folder / entry.path().filename());
  }
  fs::remove(folder / "model.safetensors");
  fs::copy_file(models / kModel / "model.safetensors", folder / "model.safetensors");
  fs::resize_file(folder / "model.safetensors", 100'000'000);
  fs::copy_file(models / "models.json", directory / "models.json");
  const Outcome outcome =
      support::run_program("dexd", {"--data-dir", directory / "data", "--grpc-port", "0",
                                    "--http-port", "0", "--models", directory / "models.json"});
  EXPECT_EQ(outcome.code, 1) << outcome.err;
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("model.safetensors"));
  EXPECT_THAT(outcome.out + outcome.err, HasSubstr("none of the models of"));
  EXPECT_FALSE(fs::exists(directory / "data/endpoints.json"));
}

}  // namespace
}  // namespace dex
