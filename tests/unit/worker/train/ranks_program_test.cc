// A job of several ranks, each a real dex-trainer: against the same job in one process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "services/base/files.h"
#include "services/base/subprocess.h"
#include "tests/support/eventually.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::train {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using support::eventually;
using ::testing::HasSubstr;
using ::testing::Not;
using Process = std::unique_ptr<base::Subprocess>;

const fs::path kData = support::source_dir() / "tests/data/train";
constexpr int64_t kPatienceMs = 120'000;
constexpr int kUpdates = 20;

class RanksTest : public testing::Test {
 protected:
  // TrainerStart on the golden model's twelve rows, each a micro-batch, a third of them held out:
  // updates of five and of what is left of a pass, so that shares are uneven.
  json start(int updates = kUpdates) const {
    return {{"modelDir", (kData / "model").string()},
            {"trainingPath", (kData / "rows.jsonl").string()},
            {"threads", 1},
            {"spec",
             {{"seed", "5"},
              {"validationSplit", 0.34},
              {"dex",
               {{"headSelection",
                 {{"criterion", "CRITERION_ENTROPY"}, {"calibration", {{"skipRows", 8}}}}}}},
              {"checkpoints", {{"everySteps", 20}}},
              {"hyperparameters",
               {{"maxSteps", updates},
                {"maxSeqLength", 64},
                {"packing", false},
                {"batchSize", 5},
                {"microBatchSize", 1},
                {"maxGradNorm", 0.5},
                {"learningRate", 1e-3}}}}}};
  }

  // Of rank `rank` of `ranks`, in the attempt's folder; what it prints is in <attempt>.<rank>.out
  // and .err.
  Process run(json start, const std::string& attempt, int rank, int ranks) const {
    const std::string name = attempt + "." + std::to_string(rank);
    start["rank"] = rank;
    start["ranks"] = ranks;
    start["rendezvousFile"] = (directory_ / (attempt + ".meeting")).string();
    std::ofstream(directory_ / (name + ".json")) << start.dump();
    base::Subprocess::Options options;
    options.program = (support::build_dir() / "bin/dex-trainer").string();
    options.args = {"--spec", (directory_ / (name + ".json")).string(), "--attempt-dir",
                    (directory_ / attempt).string()};
    options.stdout_file = directory_ / (name + ".out");
    options.stderr_file = directory_ / (name + ".err");
    auto process = base::Subprocess::start(options);
    if (!process.ok()) throw std::runtime_error(process.status().to_string());
    return std::move(process).value();
  }
  std::vector<Process> start_ranks(const json& start, const std::string& attempt, int ranks) const {
    std::vector<Process> out;
    for (int rank = 0; rank < ranks; ++rank) out.push_back(run(start, attempt, rank, ranks));
    return out;
  }
  void run_whole(const json& start, const std::string& attempt, int ranks) const {
    const auto processes = start_ranks(start, attempt, ranks);
    for (int rank = 0; rank < ranks; ++rank) {
      const auto exit = processes[static_cast<size_t>(rank)]->wait(kPatienceMs);
      ASSERT_TRUE(exit && exit->success()) << said(attempt, rank);
    }
  }

  std::string text(const fs::path& file) const {
    auto content = base::read_file(directory_ / file, 64 << 20);
    return content.ok() ? content.value() : "";
  }
  std::string said(const std::string& attempt, int rank) const {
    return text(attempt + "." + std::to_string(rank) + ".err");
  }
  // A figure of metrics.jsonl by step.
  std::map<int, double> curve(const std::string& attempt, const std::string& figure) const {
    std::map<int, double> out;
    std::ifstream in(directory_ / attempt / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
      const json point = json::parse(line);
      if (!point.contains(figure)) continue;
      const json& value = point.at(figure);  // int64 is text in protobuf's JSON
      out[point.at("step").get<int>()] =
          value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
    }
    return out;
  }
  void expect_same_curve(const std::string& a, const std::string& b, const std::string& figure,
                         double tolerance = 1e-5) const {
    const auto one = curve(a, figure), other = curve(b, figure);
    ASSERT_FALSE(one.empty()) << figure;
    ASSERT_EQ(one.size(), other.size()) << figure;
    for (const auto& [step, value] : one) {
      EXPECT_NEAR(other.at(step), value, tolerance * std::max(1.0, std::abs(value)))
          << figure << " at step " << step;
    }
  }

  support::TemporaryDirectory directory_;
};

struct Mode {
  std::string name;
  json spec;  // merged into the spec; null takes a key out
};
class RanksOfMethodTest : public RanksTest, public testing::WithParamInterface<Mode> {};

// The gradient's norm lies above the limit at first, so this is of clipping by the global one, too.
TEST_P(RanksOfMethodTest, TwoRanksHaveTheLossesOfOne) {
  json spec = start();
  spec["spec"].merge_patch(GetParam().spec);
  run_whole(spec, "one", 1);
  run_whole(spec, "two", 2);
  EXPECT_EQ(curve("two", "trainLoss").size(), static_cast<size_t>(kUpdates));
  for (const char* figure : {"trainLoss", "validLoss", "lambdaMean"})
    expect_same_curve("one", "two", figure);
  expect_same_curve("one", "two", "gradNorm", 1e-4);
  EXPECT_EQ(curve("one", "trainedTokens"), curve("two", "trainedTokens"));
  EXPECT_THAT(text("two.0.out"), HasSubstr("shared by 2 ranks"));
}

INSTANTIATE_TEST_SUITE_P(
    Methods, RanksOfMethodTest,
    testing::Values(
        Mode{"paper", json::object()},
        Mode{"uniform_map_learned_lambda",
             {{"dex",
               {{"form", "FORM_UNIFORM_MAP"},
                {"lambda", {{"schedule", "SCHEDULE_LEARNED"}, {"learnInit", 0.1}}}}}}},
        // What is dropped follows from the row's place in the update, not from who computes it.
        Mode{"lora_with_dropout", {{"dex", nullptr}, {"lora", {{"r", 4}, {"dropout", 0.1}}}}},
        Mode{"upper_layers", {{"hyperparameters", {{"firstLayer", 1}}}}},
        Mode{"full", {{"dex", nullptr}, {"full", json::object()}}}),
    [](const auto& info) { return info.param.name; });

// Rows come to more ranks than there are micro-batches, too: then some have none.
TEST_F(RanksTest, RanksWithoutAShareChangeNothing) {
  run_whole(start(4), "one", 1);
  run_whole(start(4), "seven", 7);
  expect_same_curve("one", "seven", "trainLoss");
  EXPECT_THAT(text("seven.0.out"), HasSubstr("ranks_idle"));
}

TEST_F(RanksTest, OnlyRank0SpeaksAndWrites) {
  run_whole(start(), "two", 2);
  EXPECT_THAT(text("two.0.out"), HasSubstr("step 20/20"));
  EXPECT_EQ(text("two.1.out"), "done: this rank's share of the job\n");
  EXPECT_EQ(curve("two", "stepSeconds").size(), static_cast<size_t>(kUpdates));
  EXPECT_TRUE(fs::exists(directory_ / "two/final/checksums.json"));
}

// Sums are in a fixed order, so that a job of two ranks has the same bits again, and a dead rank
// costs no more than the way from the last checkpoint.
TEST_F(RanksTest, AKilledRankEndsAllAndTheJobGoesOnToTheSameWeights) {
  constexpr int kLong = 400;
  run_whole(start(kLong), "straight", 2);
  for (const size_t victim : {0U, 1U}) {
    const std::string first = "first" + std::to_string(victim), second = first + "-again";
    auto ranks = start_ranks(start(kLong), first, 2);
    const fs::path checkpoint = directory_ / first / "step-40";
    ASSERT_TRUE(eventually([&] { return fs::exists(checkpoint / "MANIFEST.json"); }));
    ranks[victim]->signal(SIGKILL);
    EXPECT_EQ(ranks[victim]->wait(kPatienceMs)->signal, SIGKILL);
    const auto other = ranks[1 - victim]->wait(kPatienceMs);
    ASSERT_TRUE(other.has_value()) << "goes on without rank " << victim;
    EXPECT_EQ(other->code, 18) << said(first, static_cast<int>(1 - victim));
    EXPECT_THAT(said(first, static_cast<int>(1 - victim)),
                HasSubstr("rank " + std::to_string(1 - victim) + " of 2"));
    EXPECT_FALSE(fs::exists(directory_ / first / "final"));

    json again = start(kLong);
    again["attempt"] = 2;
    again["checkpointDir"] = checkpoint.string();
    run_whole(again, second, 2);
    EXPECT_THAT(text(second + ".0.out"), HasSubstr("resumed at step 40"));
    EXPECT_THAT(text(second + ".0.out"), Not(HasSubstr("resume_not_exact")));
    for (const char* file : {"final/adapter_model.safetensors", "step-400/optimizer.safetensors"}) {
      EXPECT_FALSE(text(fs::path("straight") / file).empty());
      EXPECT_TRUE(text(fs::path("straight") / file) == text(fs::path(second) / file)) << file;
    }
  }
}

TEST_F(RanksTest, AnotherNumberOfRanksGoesOnAndSaysThatItRoundsOtherwise) {
  run_whole(start(), "two", 2);
  json alone = start();
  alone["attempt"] = 2;
  alone["checkpointDir"] = (directory_ / "two/step-20").string();
  run_whole(alone, "alone", 1);
  EXPECT_THAT(text("alone.0.out"), HasSubstr("resume_not_exact"));
  EXPECT_THAT(text("alone.0.out"), HasSubstr("by 2 ranks"));
}

// An eviction reaches all processes: rank 0 saves first, and the others wait for it.
TEST_F(RanksTest, SigtermSavesAndEndsAll) {
  auto ranks = start_ranks(start(20000), "drained", 2);
  ASSERT_TRUE(eventually([&] { return fs::exists(directory_ / "drained/step-20/MANIFEST.json"); }));
  ranks[1]->signal(SIGTERM);
  ranks[0]->signal(SIGTERM);
  EXPECT_EQ(ranks[0]->wait(kPatienceMs)->code, 16);
  EXPECT_THAT(said("drained", 0), HasSubstr("stopped on request at step"));
  EXPECT_TRUE(ranks[1]->wait(kPatienceMs).has_value());
}

TEST_F(RanksTest, ARankOfAnotherJobIsRefused) {
  const auto rank0 = run(start(20), "mixed", 0, 2);
  const auto rank1 = run(start(30), "mixed", 1, 2);
  EXPECT_EQ(rank1->wait(kPatienceMs)->code, 18);
  EXPECT_THAT(said("mixed", 1), HasSubstr("rank 1 plans 30 updates"));
  EXPECT_THAT(said("mixed", 1), HasSubstr("rank 0 plans 20 updates"));
  EXPECT_EQ(rank0->wait(kPatienceMs)->code, 18);
}

struct Refused {
  std::string name, key;
  json value;
  std::string says;
};
class RefusedRanksTest : public RanksTest, public testing::WithParamInterface<Refused> {};

TEST_P(RefusedRanksTest, NameTheFieldAndTheValue) {
  json spec = start();
  spec["ranks"] = 2;
  spec["rendezvousFile"] = (directory_ / "meeting").string();
  spec[GetParam().key] = GetParam().value;
  std::ofstream(directory_ / "spec.json") << spec.dump();
  base::Subprocess::Options options;
  options.program = (support::build_dir() / "bin/dex-trainer").string();
  options.args = {"--spec", (directory_ / "spec.json").string(), "--attempt-dir",
                  (directory_ / "attempt").string()};
  options.stderr_file = directory_ / "err.txt";
  auto process = base::Subprocess::start(options);
  ASSERT_TRUE(process.ok());
  EXPECT_EQ((*process)->wait(kPatienceMs)->code, 10);
  EXPECT_THAT(text("err.txt"), HasSubstr(GetParam().says));
}

INSTANTIATE_TEST_SUITE_P(
    Settings, RefusedRanksTest,
    testing::Values(Refused{"too_many", "ranks", 65, "ranks: must be between 0 and 64, got 65"},
                    Refused{"rank", "rank", 2, "rank: must be below ranks = 2, got 2"},
                    Refused{"nowhere", "rendezvousFile", "", "rendezvous_file: must be a new file"},
                    Refused{"hold", "hold", true, "ranks: must be 1 with"},
                    Refused{"probe", "probeOnly", true, "ranks: must be 1 with"},
                    Refused{"heads", "headsOnly", true, "ranks: must be 1 with"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace dex::train
