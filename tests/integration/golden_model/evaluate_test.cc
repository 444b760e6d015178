// dex-engine evaluate, the program, on the real model: against transformers (tests/data/evaluate),
// against itself, and what it says of things that can't be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "services/base/files.h"
#include "services/base/subprocess.h"
#include "tests/integration/golden_model/golden.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::golden {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

const std::filesystem::path kData = support::source_dir() / "tests/data/evaluate";

struct Ended {
  int code = -1;
  std::string out, error;
};

class EvaluateTest : public ::testing::Test {
 protected:
  static std::vector<std::string> arguments(const std::string& task,
                                            const std::vector<std::string>& more) {
    std::vector<std::string> out = {"evaluate", task,  "--model",   model_folder().string(),
                                    "--dtype",  "f32", "--threads", "2"};
    out.insert(out.end(), more.begin(), more.end());
    return out;
  }
  std::unique_ptr<base::Subprocess> start(const std::string& task,
                                          const std::vector<std::string>& more) {
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-engine").string();
    options.args = arguments(task, more);
    options.stdout_file = dir_ / "out";
    options.stderr_file = dir_ / "error";
    for (const auto& file : {options.stdout_file, options.stderr_file})
      std::filesystem::remove(file);
    auto process = base::Subprocess::start(options);
    EXPECT_TRUE(process.ok()) << process.status().message();
    return std::move(process).value();
  }
  Ended finish(base::Subprocess& process) {
    const auto exit = process.wait(300'000);
    return {exit ? exit->code : -1, *base::read_file(dir_ / "out", 1 << 24),
            *base::read_file(dir_ / "error", 1 << 24)};
  }
  Ended run(const std::string& task, const std::vector<std::string>& more) {
    return finish(*start(task, more));
  }
  nlohmann::json rows(const std::string& task, std::vector<std::string> more) {
    more.emplace_back("--json");
    const Ended ended = run(task, more);
    EXPECT_EQ(ended.code, 0) << ended.error;
    return nlohmann::json::parse(ended.out)["rows"];
  }
  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(dir_ / name) << content;
    return (dir_ / name).string();
  }
  static nlohmann::json expected() {
    std::ifstream file(kData / "golden.json");
    return nlohmann::json::parse(file);
  }

  support::TemporaryDirectory dir_;
};

TEST_F(EvaluateTest, PerplexityOfARealTextIsTransformers) {
  const nlohmann::json golden = expected();
  for (const auto& wanted : golden["perplexity"]) {
    const auto found = rows("perplexity", {"--file", (kData / "jargon.txt").string(),
                                           "--context-length", wanted["context"].dump(), "--stride",
                                           wanted["stride"].dump(), "--max-tokens", "1200"});
    const double loss = found[0]["value"], perplexity = found[1]["value"];
    EXPECT_EQ(found[0]["metric"], "loss");
    EXPECT_NEAR(loss, wanted["loss"].get<double>(), 1e-3);
    EXPECT_NEAR(perplexity / std::exp(wanted["loss"].get<double>()), 1, 1e-3);
    EXPECT_EQ(found[0]["n"], 5);  // 1199 tokens in blocks of 256
    EXPECT_LT(found[0]["low"].get<double>(), loss);
    EXPECT_GT(found[0]["high"].get<double>(), loss);
  }
}

TEST_F(EvaluateTest, ChoicesAreAsLikelyAsInTransformers) {
  const auto samples = (dir_ / "samples.jsonl").string();
  rows("multiple_choice", {"--file", (kData / "mmlu.csv").string(), "--samples-out", samples});
  std::ifstream file(samples);
  std::vector<std::vector<double>> found;
  for (std::string line; std::getline(file, line);)
    found.push_back(nlohmann::json::parse(line)["logprobs"].get<std::vector<double>>());
  const std::vector<std::vector<double>> wanted = expected()["choices"];
  ASSERT_EQ(found.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_LT(largest_difference(found[i], wanted[i]), 2e-3) << "question " << i;
}

// The shares of transformers' own maps, and what the rows say of the samples.
TEST_F(EvaluateTest, AttentionFallsWhereItDoesInTransformers) {
  const auto samples = (dir_ / "samples.jsonl").string();
  const auto found =
      rows("multi_needle", {"--file", (kData / "jargon.txt").string(), "--lengths", "256",
                            "--depths-percent", "50", "--n-needles", "3", "--n-queries", "2",
                            "--samples-per-cell", "2", "--samples-out", samples});
  const nlohmann::json wanted = expected()["attention"];
  std::ifstream prompts(kData / "needle_prompts.json");
  const nlohmann::json asked = nlohmann::json::parse(prompts);
  std::ifstream file(samples);
  std::map<std::string, double> mean;
  size_t i = 0;
  for (std::string line; std::getline(file, line); ++i) {
    const nlohmann::json sample = nlohmann::json::parse(line);
    ASSERT_EQ(sample["prompt"], asked.at(i));
    ASSERT_EQ(sample["attention"].size(), 5U);
    double total = 0;
    for (const auto& [part, share] : wanted.at(i).items()) {
      EXPECT_NEAR(sample["attention"].at(part).get<double>(), share.get<double>(), 1e-5) << part;
      mean["attention_" + part] += share.get<double>() / 2;
      total += sample["attention"].at(part).get<double>();
    }
    EXPECT_NEAR(total, 1, 1e-9);
  }
  ASSERT_EQ(i, 2U);
  mean["attention_noise"] = mean["attention_other_needles"] + mean["attention_filler"];
  size_t compared = 0;
  for (const auto& row : found) {
    const auto metric = row["metric"].get<std::string>();
    if (!row["dims"].empty() || !mean.contains(metric)) continue;
    EXPECT_NEAR(row["value"].get<double>(), mean[metric], 1e-5) << metric;
    EXPECT_LE(row["low"].get<double>(), row["value"].get<double>());
    EXPECT_GE(row["high"].get<double>(), row["value"].get<double>());
    ++compared;
  }
  EXPECT_EQ(compared, 6U);
}

TEST_F(EvaluateTest, TheBaseAgainstItselfIsNoDifference) {
  const std::string few = write("few.txt", "The sky is blue. Grass is green.\nSnow is white.\n");
  for (const auto& row : rows("perplexity", {"--file", (kData / "jargon.txt").string(), "--adapter",
                                             "none", "--max-tokens", "600"})) {
    if (row["subject"] == "base") continue;
    EXPECT_EQ(row["subject"], "base-2");
    EXPECT_EQ(row["delta"], 0);
    EXPECT_EQ(row["delta_low"], 0);
    EXPECT_EQ(row["delta_high"], 0);
    EXPECT_EQ(row["verdict"], "NO_DIFFERENCE");
  }
  for (const auto& row :
       rows("multi_needle",
            {"--file", few, "--adapter", "none", "--lengths", "256", "--n-needles", "2",
             "--n-queries", "1", "--samples-per-cell", "1", "--depths-percent", "0,100"})) {
    if (row["subject"] != "base") {
      EXPECT_EQ(row["delta"], 0);
    }
  }
}

TEST_F(EvaluateTest, ATableAHeatMapAndProgressForPeople) {
  // In the shipped text: without --file.
  const Ended ended =
      run("multi_needle", {"--lengths", "256,512", "--depths-percent", "0,100", "--n-needles", "1",
                           "--n-queries", "1", "--samples-per-cell", "3", "--chat"});
  EXPECT_EQ(ended.code, 0) << ended.error;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("length=256 depth=0"), HasSubstr("WILSON"),
                               HasSubstr("accuracy, base"), HasSubstr("depth 100 %"),
                               HasSubstr("note: 3 samples a cell")));
  EXPECT_THAT(ended.error, HasSubstr("multi_needle: base 12/12"));
}

TEST_F(EvaluateTest, AnswersExamplesInContextAndExports) {
  const std::string questions = write(
      "nq.jsonl",
      R"({"question":"What colour is the sky?","context":"The sky is blue.","answers":["blue"]}
{"question":"Who wrote it?","context":"Ann wrote the letter.","answers":["Ann"]}
)");
  EXPECT_EQ(rows("answers", {"--file", questions, "--max-tokens", "12"}).size(), 4U);
  std::string labelled;
  for (int i = 0; i < 12; ++i)
    labelled += i % 2 == 0
                    ? "{\"text\":\"I loved film " + std::to_string(i) + "\",\"label\":\"good\"}\n"
                    : "{\"text\":\"I hated film " + std::to_string(i) + "\",\"label\":\"bad\"}\n";
  EXPECT_GE(rows("icl", {"--file", write("l.jsonl", labelled), "--shots", "0,4", "--n-orders", "2"})
                .size(),
            5U);
  const std::string set = write("set.json", R"([{"instruction":"Name a colour."}])");
  const Ended ended = run("instructions", {"--file", set, "--adapter", "none", "--max-tokens", "8",
                                           "--out", (dir_ / "export").string()});
  EXPECT_EQ(ended.code, 0) << ended.error;
  for (const char* name :
       {"outputs-base.json", "outputs-base-2.json", "pairs-base-2.json", "pairs-base-2.key.json"})
    EXPECT_TRUE(std::filesystem::exists(dir_ / "export" / name)) << name;
}

TEST_F(EvaluateTest, WhatCannotBeIsSaidInASentence) {
  const std::string text = (kData / "jargon.txt").string();
  const auto refusal = [&](const std::string& task, const std::vector<std::string>& more) {
    const Ended ended = run(task, more);
    EXPECT_EQ(ended.code, 1);
    EXPECT_EQ(ended.out, "");
    return ended.error;
  };
  EXPECT_THAT(refusal("multiple_choice", {"--file", text}),
              AllOf(HasSubstr("line 1: has 1 fields"), HasSubstr("Expected MMLU's CSV")));
  EXPECT_THAT(refusal("perplexity", {"--file", write("e.txt", " \n")}), HasSubstr("empty"));
  EXPECT_THAT(refusal("multi_needle", {"--file", text, "--lengths", "16384"}),
              AllOf(HasSubstr("16384"), HasSubstr("8192"), HasSubstr("--allow-extrapolation")));
  EXPECT_THAT(refusal("multi_needle", {"--file", text, "--lengths", "128", "--n-needles", "8"}),
              HasSubstr("the needles do not fit"));
  EXPECT_THAT(refusal("perplexity", {"--file", text, "--adapter", "/nowhere"}),
              HasSubstr("/nowhere"));
  EXPECT_EQ(run("perplexity", {}).code, 2);
  EXPECT_EQ(run("juggling", {"--file", text}).code, 2);
}

TEST_F(EvaluateTest, CtrlCShowsWhatWasMeasured) {
  // Enough for minutes; the first samples tell that it is at work.
  const auto samples = dir_ / "samples.jsonl";
  auto process =
      start("multi_needle",
            {"--file", (kData / "jargon.txt").string(), "--lengths", "256", "--n-needles", "2",
             "--n-queries", "1", "--samples-per-cell", "500", "--samples-out", samples.string()});
  for (int i = 0;
       i < 600 && (!std::filesystem::exists(samples) || std::filesystem::file_size(samples) == 0);
       ++i) {
    ASSERT_FALSE(process->wait(100)) << *base::read_file(dir_ / "error", 1 << 20);
  }
  process->signal(SIGINT);
  const Ended ended = finish(*process);
  EXPECT_EQ(ended.code, 130);
  EXPECT_THAT(ended.out, HasSubstr("accuracy"));
  EXPECT_THAT(ended.error, HasSubstr("stopped: the rows are over what was measured"));
}

}  // namespace
}  // namespace dex::golden
