// What the estimate says of memory against what a whole job takes (api.md, C28).
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;

// The bands that finetuning.proto states (Estimate.peak_host_memory_bytes).
constexpr double kFormulaFactor = 2, kProbeFactor = 3;

double bytes(const nlohmann::json& figures) {
  return std::stod(figures.at("peak_host_memory_bytes").get<std::string>());
}

// The same spec asked three ways: by formula, by one update on a worker, and run to its end, with
// evaluations, checkpoints and the export. A tiny model's peak is mostly what the program itself
// takes; that of models which are large beside it: WholePathTest.
TEST(MemoryBandTest, FormulaAndProbeAreWithinTheirBandsOfAWholeRun) {
  support::TemporaryDirectory directory;
  RunningPlatform platform(directory / "data", support::write_tiny_model(directory / "models"));
  platform.start();
  const std::string training = platform.upload_rows("code", "train", 20);
  const std::string validation = platform.upload_rows("code", "validation", 10);
  std::vector<std::string> create =
      support::small_job(training, validation, /*steps=*/12, support::kTinyModel);
  std::vector<std::string> estimate = create;
  estimate.at(1) = "estimate";
  std::erase(estimate, "--yes");

  const Outcome formula = platform.ctl(estimate);
  ASSERT_EQ(formula.code, 0) << formula.err;
  const Outcome probe = platform.ctl(support::with(estimate, {"--probe"}));
  ASSERT_EQ(probe.code, 0) << probe.err;
  const Outcome whole = platform.ctl(support::with(create, {"--follow"}));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto job = whole.json();
  ASSERT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");

  const double taken = bytes(job.at("metrics"));
  const double by_formula = bytes(formula.json()), by_probe = bytes(probe.json());
  EXPECT_EQ(probe.json().at("method"), "METHOD_PROBE");
  const auto factor = [taken](double said) { return std::max(said / taken, taken / said); };
  EXPECT_LE(factor(by_formula), kFormulaFactor) << by_formula << " said, " << taken << " taken";
  EXPECT_LE(factor(by_probe), kProbeFactor) << by_probe << " measured, " << taken << " taken";
}

}  // namespace
}  // namespace dex
