// `dexctl study` against real platforms: its report holds what the jobs say, the same command on
// the same folder makes no new job, and a seed's numbers are those of every other run.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "tests/e2e/small_job.h"
#include "tests/support/content_of.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using nlohmann::json;
using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kModel = support::kTinyModel;

// A platform that has what a study needs.
struct Place {
  Place(const fs::path& data_dir, const fs::path& models) : platform(data_dir, models) {
    platform.start();
    training = platform.upload_rows("code", "train", 20);
    validation = platform.upload_rows("code", "validation", 10);
  }
  Outcome study(const std::string& methods, const fs::path& out, int speed_pairs = 0,
                const std::vector<std::string>& more = {}) const {
    return platform.plain_ctl(
        support::with({"study", "--model", kModel, "--training-file", training, "--validation-file",
                       validation, "--methods", methods, "--seeds", "1,2", "--preset", "code",
                       "--max-steps", "8", "--batch-size", "2", "--max-seq-length", "128", "--set",
                       "dex.head_selection.calibration.n_sequences=2", "--set",
                       "dex.head_selection.calibration.seq_length=128",
                       // The preset's thresholds choose no head of so small a model.
                       "--set", "dex.head_selection.criterion=ENTROPY", "--set",
                       "evaluation.max_tokens=384", "--set", "evaluation.every_steps=8",
                       "--speed-pairs", std::to_string(speed_pairs), "--out", out},
                      more));
  }
  [[nodiscard]] size_t evaluations() const {
    return platform.ctl({"evaluations", "list"}).json().at("evaluations").size();
  }
  [[nodiscard]] size_t jobs() const {
    return platform.ctl({"jobs", "list"}).json().at("jobs").size();
  }

  // A job that has ended without a result, and was not the study's.
  [[nodiscard]] std::string cancelled_job() const {
    const auto job = platform.ctl(support::small_job(training, validation, 100000, kModel)).json();
    const auto id = job.at("id").get<std::string>();
    EXPECT_EQ(platform.ctl({"jobs", "cancel", id, "--wait"}).code, 0);
    return id;
  }

  RunningPlatform platform;
  std::string training, validation;
};

json report_in(const fs::path& out) {
  return json::parse(support::content_of(out / "report.json"));
}

// Held-out losses of the base and of what was trained by method and seed; doubles, to the bit.
std::map<std::string, std::pair<double, double>> losses_of(const json& report) {
  std::map<std::string, std::pair<double, double>> losses;
  for (const auto& run : report.at("runs")) {
    EXPECT_EQ(run.at("failure"), "");
    losses[run.at("method").get<std::string>() + "/" + std::to_string(run.at("seed").get<int>())] =
        {run.at("base_loss").get<double>(), run.at("loss").get<double>()};
  }
  return losses;
}

const json& run_of(const json& report, const std::string& method, int seed) {
  for (const auto& run : report.at("runs")) {
    if (run.at("method") == method && run.at("seed") == seed) return run;
  }
  throw std::runtime_error("no run of " + method);
}

// The averages of method.md §4.6, e ← 0.98·e + 0.02·loss, from the events that dexctl prints.
std::vector<double> averages_of(const Place& place, const json& run) {
  std::map<int, double> losses;
  std::istringstream lines(
      place.platform.ctl({"jobs", "events", run.at("job").get<std::string>()}).out);
  for (std::string line; std::getline(lines, line);) {
    const auto event = json::parse(line);
    if (event.value("type", "") != "metrics") continue;
    const auto& metrics = event.at("metrics");
    losses[metrics.at("step").get<int>()] = metrics.at("train_loss").get<double>();
  }
  std::vector<double> averages;
  for (const auto& [step, loss] : losses)
    averages.push_back(averages.empty() ? loss : 0.98 * averages.back() + 0.02 * loss);
  return averages;
}

void expect_what_the_jobs_say(const Place& place, const json& report) {
  for (const auto& run : report.at("runs")) {
    const auto job = place.platform.ctl({"jobs", "get", run.at("job").get<std::string>()}).json();
    EXPECT_EQ(run.at("loss"), job.at("metrics").at("valid_loss"));
    EXPECT_EQ(run.at("gradient_range"), job.at("metrics").at("gradient_range"));
    EXPECT_GT(run.at("gradient_range").get<double>(), 0);
    EXPECT_GT(run.at("trained_tokens").get<int64_t>(), 0);
    if (run.at("method") != "dex") continue;
    const auto& effect = job.at("branch_effect");
    EXPECT_EQ("VERDICT_" + run.at("branch_effect").at("verdict").get<std::string>(),
              effect.at("verdict").get<std::string>());
    EXPECT_EQ(run.at("branch_effect").at("value"), effect.at("value"));
    EXPECT_EQ(run.at("branch_effect").at("ce_delta"), effect.at("ce_delta"));

    const auto own = averages_of(place, run);
    const auto control = averages_of(place, run_of(report, "kvo_only", run.at("seed").get<int>()));
    ASSERT_EQ(own.size(), 8u);
    ASSERT_EQ(control.size(), 8u);
    EXPECT_NEAR(run.at("train_loss_average").get<double>(), own.back(), 1e-12);
    json steps = nullptr;
    for (size_t u = 0; u < own.size() && steps.is_null(); ++u) {
      if (own[u] < control.back()) steps = u;
    }
    EXPECT_EQ(run.at("steps_to_kvo_only"), steps);
  }
}

// Each run's figures are the rows of its evaluation, of the result and of the base beside it.
void expect_what_the_evaluations_say(const Place& place, const json& report) {
  for (const auto& run : report.at("runs")) {
    const auto evaluation =
        place.platform.ctl({"evaluations", "get", run.at("evaluation").get<std::string>()}).json();
    EXPECT_EQ(evaluation.at("spec").at("subjects").at(1).at("adapter"), run.at("adapter"));
    std::map<std::string, json> rows;
    for (const auto& row : evaluation.at("results").at(0).at("rows"))
      rows[row.at("subject").get<std::string>() + " " + row.at("metric").get<std::string>()] = row;
    ASSERT_EQ(run.at("tasks").size(), 3U) << "by the sum, a byte and a token";
    for (const auto& figure : run.at("tasks")) {
      const auto metric = figure.at("metric").get<std::string>();
      EXPECT_EQ(figure.at("base"), rows.at("base " + metric).at("value")) << metric;
      EXPECT_EQ(figure.at("value"), rows.at("result " + metric).at("value")) << metric;
      EXPECT_EQ(figure.at("n"), 6) << metric;
    }
  }
}

TEST(StudyTest, GoesOnWhereItWasAndGivesTheSameNumbersElsewhere) {
  const support::TemporaryDirectory directory;
  const fs::path models = support::write_tiny_model(directory / "models");
  std::map<std::string, std::pair<double, double>> losses;
  {
    const Place place(directory / "first", models);
    const fs::path out = directory / "study";
    std::ofstream questions(directory / "questions.csv");
    for (const char* letter : {"A", "B", "C", "D", "A", "B"})
      questions << "Which letter is " << letter << "?,1,2,3,4," << letter << "\n";
    questions.close();
    const std::vector<std::string> task = {
        "--task", "multiple_choice(" + (directory / "questions.csv").string() + ")"};
    const Outcome outcome = place.study("dex", out, 1, task);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_THAT(outcome.err, HasSubstr("kvo_only is added"));
    EXPECT_THAT(outcome.out, HasSubstr("| base | "));
    EXPECT_THAT(outcome.out, HasSubstr("`dex` against `kvo_only`"));
    EXPECT_EQ(outcome.out.find("decoding not measured"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out.find("budgets are not equal"), std::string::npos) << outcome.out;
    EXPECT_EQ(outcome.out, support::content_of(out / "report.md"));
    EXPECT_THAT(support::content_of(out / "loss.svg"), HasSubstr("</svg>"));

    const json report = report_in(out);
    losses = losses_of(report);
    ASSERT_EQ(losses.size(), 4u);
    EXPECT_NE(losses.at("dex/1"), losses.at("dex/2")) << "a seed is an order of the data";
    EXPECT_EQ(place.jobs(), 4u);
    expect_what_the_jobs_say(place, report);
    EXPECT_EQ(place.evaluations(), 4u);
    expect_what_the_evaluations_say(place, report);
    EXPECT_THAT(outcome.out, HasSubstr("| acc | base | "));

    const Outcome again = place.study("dex", out, 0, task);
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_EQ(place.jobs(), 4u) << "the same command makes no new job";
    EXPECT_EQ(place.evaluations(), 4u) << "and no new evaluation";
    expect_what_the_evaluations_say(place, report_in(out));
    const json taken_up = report_in(out);
    EXPECT_EQ(losses_of(taken_up), losses);
    expect_what_the_jobs_say(place, taken_up);

    // In place of one run's job there is one that was cancelled: that run gets a new job, once.
    json book = json::parse(support::content_of(out / "jobs.json"));
    auto& recorded = *std::find(book.begin(), book.end(), run_of(report, "dex", 2).at("job"));
    const std::string cancelled = place.cancelled_job();
    recorded = cancelled;
    std::ofstream(out / "jobs.json") << book.dump();
    for (int i = 0; i < 2; ++i) {
      const Outcome tried = place.study("dex", out);
      ASSERT_EQ(tried.code, 0) << tried.err;
      EXPECT_EQ(place.jobs(), 6u) << "the cancelled one and its successor";
      EXPECT_EQ(losses_of(report_in(out)), losses) << "the successor's, to the bit";
      EXPECT_NE(run_of(report_in(out), "dex", 2).at("job").get<std::string>(), cancelled);
    }

    // An evaluation that somebody deleted is made anew, once; the study does not fail on its id.
    const auto deleted = run_of(report, "dex", 1).at("evaluation").get<std::string>();
    ASSERT_EQ(place.platform.ctl({"evaluations", "delete", deleted, "--yes"}).code, 0);
    const size_t left = place.evaluations();
    for (int i = 0; i < 2; ++i) {
      const Outcome tried = place.study("dex", out, 0, task);
      ASSERT_EQ(tried.code, 0) << tried.err;
      EXPECT_EQ(tried.out.find("tasks not measured"), std::string::npos) << tried.out;
      EXPECT_NE(run_of(report_in(out), "dex", 1).at("evaluation").get<std::string>(), deleted);
    }
    EXPECT_EQ(place.evaluations(), left + 2) << "its successor, and that of the job tried again";

    // The preset's sign is plus: dex:plus would be dex compared with itself.
    const Outcome itself = place.study("dex,dex:plus", directory / "itself");
    EXPECT_EQ(itself.code, 3) << itself.err;
    EXPECT_THAT(itself.err, HasSubstr("dex:plus asks for what dex does already"));
    EXPECT_EQ(place.jobs(), 6u);
  }
  const Place place(directory / "second", models);
  const Outcome outcome = place.study("dex,kvo_only", directory / "study-again");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(losses_of(report_in(directory / "study-again")), losses) << "to the bit";
}

}  // namespace
}  // namespace dex
