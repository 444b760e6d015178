// Evaluations through every process: dexctl, gateway, scheduler, agent and engine, on a tiny random
// model. What is compared with is `dex-engine evaluate` on the same file, which asks nobody.
#include <gmock/gmock.h>
#include <signal.h>

#include <algorithm>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
namespace fs = std::filesystem;

// One platform with one adapter for all tests.
class EvaluationTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data",
                                    support::write_tiny_model(*directory_ / "models"));
    platform_->start();
    const auto training = platform_->upload_rows("code", "train", 20);
    training_ = new std::string(training);
    const auto validation = platform_->upload_rows("code", "validation", 10);
    const Outcome trained = platform_->ctl(support::with(
        support::small_job(training, validation, 6, support::kTinyModel), {"--follow"}));
    EXPECT_EQ(trained.code, 0) << trained.err;
    adapter_ = new std::string(trained.json().at("fine_tuned_model").get<std::string>());
    std::ofstream text(*directory_ / "wiki.test.raw");
    for (int i = 0; i < 150; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    for (const std::string* text : {adapter_, training_}) delete text;
  }

  static std::vector<std::string> perplexity(const fs::path& file) {
    return {"evaluations", "create", "--adapter", *adapter_, "--task",
            "perplexity",  "--file", file,        "--set",   "context_length=128",
            "--seed",      "5"};
  }
  // "subject metric" → row, of those over everything.
  static std::map<std::string, nlohmann::json> rows(const nlohmann::json& list) {
    std::map<std::string, nlohmann::json> out;
    for (const auto& row : list) {
      if (row.value("dims", nlohmann::json::object()).empty())
        out[row.at("subject").get<std::string>() + " " + row.at("metric").get<std::string>()] = row;
    }
    return out;
  }

  // The evaluator, held where it is so that it can't be done before the test is: a tiny model's
  // evaluations end within a few hundred milliseconds. A second engine beside the serving one.
  static pid_t held_evaluator() {
    std::vector<pid_t> engines;
    const auto started = [&] {
      engines = platform_->processes("dex-engine");
      return engines.size() == 2;
    };
    EXPECT_TRUE(support::eventually(started, 120'000)) << "it was over before it could be held";
    if (engines.size() != 2) return -1;
    EXPECT_EQ(kill(engines[1], SIGSTOP), 0);
    return engines[1];
  }

  static std::string content(const fs::path& file) {
    std::ifstream in(file);
    EXPECT_TRUE(in) << file;
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static std::string* adapter_;
  static std::string* training_;  // its file
};
support::TemporaryDirectory* EvaluationTest::directory_ = nullptr;
RunningPlatform* EvaluationTest::platform_ = nullptr;
std::string* EvaluationTest::adapter_ = nullptr;
std::string* EvaluationTest::training_ = nullptr;

TEST_F(EvaluationTest, PerplexityOfBaseAndAdapterIsThatOfTheEngineAlone) {
  const fs::path file = *directory_ / "wiki.test.raw";
  const Outcome followed = platform_->ctl(support::with(perplexity(file), {"--follow"}));
  ASSERT_EQ(followed.code, 0) << followed.err;
  EXPECT_THAT(followed.err, HasSubstr("Task 1 of 1, perplexity, is done."));
  const auto evaluation = followed.json();
  EXPECT_EQ(evaluation.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(evaluation.at("progress").at("step"), 1);
  const auto got = rows(evaluation.at("results").at(0).at("rows"));

  const fs::path folder = *directory_ / "adapter";
  ASSERT_EQ(platform_->ctl({"adapters", "download", *adapter_, folder}).code, 0);
  const Outcome alone = support::run_program(
      "dex-engine",
      {"evaluate", "perplexity", "--model", *directory_ / "models" / support::kTinyModel,
       "--adapter", folder, "--file", file, "--context-length", "128", "--seed", "5", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto expected = rows(nlohmann::json::parse(alone.out).at("rows"));
  ASSERT_EQ(got.size(), expected.size());
  for (const std::string metric : {"perplexity", "loss", "bits_per_byte"}) {
    for (const std::string subject : {"base", "adapter"}) {
      const auto& one = got.at(subject + " " + metric);
      const auto& other = expected.at(subject + " " + metric);
      EXPECT_EQ(one.at("value"), other.at("value")) << subject << " " << metric;
      EXPECT_EQ(one.at("low"), other.at("low"));
      EXPECT_EQ(one.at("high"), other.at("high"));
      EXPECT_LT(one.at("low"), one.at("value"));
      EXPECT_GT(one.at("high"), one.at("value"));
    }
    EXPECT_EQ(got.at("adapter " + metric).at("delta"),
              expected.at("adapter " + metric).at("delta"));
  }
  RecordProperty("perplexity_base", got.at("base perplexity").at("value").dump());
  std::cout << "perplexity base " << got.at("base perplexity").dump() << "\nperplexity adapter "
            << got.at("adapter perplexity").dump() << std::endl;

  const std::string id = evaluation.at("id");
  const Outcome report = platform_->plain_ctl({"evaluations", "get", id, "--markdown"});
  EXPECT_THAT(report.out, HasSubstr("## perplexity: wiki.test.raw"));
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "get", id}).out, HasSubstr("VERDICT"));
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "list"}).out, HasSubstr(id));
  EXPECT_EQ(platform_->ctl({"jobs", "list"}).out.find(id), std::string::npos);
}

// What eight bits cost base and adapter: each beside itself, and the pair that a comparison makes.
TEST_F(EvaluationTest, EightBitsAreMeasuredBesideTheSameAsStored) {
  const fs::path file = *directory_ / "wiki.test.raw";
  const Outcome followed =
      platform_->ctl(support::with(perplexity(file), {"--against-int8", "--follow"}));
  ASSERT_EQ(followed.code, 0) << followed.err;
  const auto got = rows(followed.json().at("results").at(0).at("rows"));
  const fs::path folder = *directory_ / "eight" / "adapter";
  ASSERT_EQ(platform_->ctl({"adapters", "download", *adapter_, folder}).code, 0);
  const Outcome alone = support::run_program(
      "dex-engine", {"evaluate", "perplexity", "--model",
                     *directory_ / "models" / support::kTinyModel, "--adapter", folder, "--file",
                     file, "--context-length", "128", "--seed", "5", "--dtype", "int8", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto expected = rows(nlohmann::json::parse(alone.out).at("rows"));
  for (const std::string subject : {"base", "adapter"}) {
    EXPECT_EQ(got.at(subject + "-int8 loss").at("value"),
              expected.at(subject + " loss").at("value"));
    EXPECT_NE(got.at(subject + "-int8 loss").at("value"), got.at(subject + " loss").at("value"));
  }
  const std::string id = followed.json().at("id");
  const Outcome compared = platform_->ctl(
      {"evaluations", "compare", id, id, "--subject-a", "adapter", "--subject-b", "adapter-int8"});
  bool found = false;
  const auto differences = compared.json().at("differences");
  for (const auto& row : differences) {
    if (row.at("metric") != "loss" || !row.value("dims", nlohmann::json::object()).empty())
      continue;
    found = true;
    EXPECT_EQ(row.at("value_b"), got.at("adapter-int8 loss").at("value"));
    EXPECT_NEAR(row.at("delta").get<double>(),
                row.at("value_b").get<double>() - row.at("value_a").get<double>(), 1e-9);
  }
  EXPECT_TRUE(found) << compared.out << compared.err;
}

// PreviewHeadSelection shows what a job of the same file and settings chooses, one that leaves
// lengths and held-out rows to the server.
TEST_F(EvaluationTest, APreviewShowsTheHeadsAndScoresOfTheJob) {
  const Outcome trained = platform_->ctl(
      support::with(support::small_job(*training_, "", 2, support::kTinyModel, 0), {"--follow"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string job = trained.json().at("id");
  const std::vector<std::string> preview = {"jobs",     "heads",
                                            "--model",  support::kTinyModel,
                                            "--file",   *training_,
                                            "--preset", "code",
                                            "--seed",   "1",
                                            "--set",    "calibration.n_sequences=2",
                                            "--set",    "calibration.seq_length=128"};
  const Outcome shown = platform_->ctl(preview);
  ASSERT_EQ(shown.code, 0) << shown.err;
  const Outcome chosen = platform_->ctl({"jobs", "heads", job});
  ASSERT_EQ(chosen.code, 0) << chosen.err;
  const auto report = shown.json(), event = chosen.json();
  EXPECT_EQ(report.at("criterion"), event.at("criterion"));
  EXPECT_EQ(report.at("selected_heads"), event.at("selected_heads"));
  ASSERT_EQ(report.at("layers").size(), event.at("layers").size());
  for (size_t l = 0; l < report.at("layers").size(); ++l) {
    const auto &mine = report.at("layers")[l], &of_job = event.at("layers")[l];
    EXPECT_EQ(mine.at("selected"), of_job.at("selected")) << l;
    for (const char* score : {"entropy", "importance"}) {
      ASSERT_EQ(mine.at(score).size(), of_job.at(score).size());
      for (size_t h = 0; h < mine.at(score).size(); ++h) {  // an event has 32 bits of a score
        EXPECT_EQ(mine.at(score)[h].get<float>(), of_job.at(score)[h].get<float>())
            << score << " of layer " << l << ", head " << h;
      }
    }
  }
  EXPECT_EQ(report.at("calibration").at("sequences"), 2);
  const fs::path of_preview = *directory_ / "preview", of_job = *directory_ / "job";
  ASSERT_EQ(platform_->ctl(support::with(preview, {"--out", of_preview})).code, 0);
  const Outcome written = platform_->ctl({"jobs", "heads", job, "--out", of_job});
  ASSERT_EQ(written.code, 0) << written.err;
  for (const fs::path& folder : {of_preview, of_job}) {
    EXPECT_THAT(content(folder / "head_selection.svg"), HasSubstr("chosen")) << folder;
    const auto whole = nlohmann::json::parse(content(folder / "head_selection.json"));
    EXPECT_EQ(whole.at("selected_heads"), report.at("selected_heads")) << folder;
    EXPECT_EQ(whole.at("calibration"), report.at("calibration")) << folder;
    EXPECT_EQ(whole.at("calibration").at("source"), "training_file") << folder;
    for (const auto& layer : whole.at("layers"))
      EXPECT_EQ(layer.at("chosen_by").size(), layer.at("selected").size()) << folder;
    EXPECT_EQ(whole.at("selections").size(), 1u) << folder;
  }
  const Outcome grid = platform_->plain_ctl(preview);
  EXPECT_THAT(grid.out, HasSubstr("entropy: "));
  EXPECT_THAT(grid.out, HasSubstr("stability: "));
  for (const std::string& text : {grid.out, platform_->plain_ctl({"jobs", "heads", job}).out}) {
    EXPECT_THAT(text, HasSubstr("share by layer, %: "));
    EXPECT_THAT(text, HasSubstr("tokens of the training file, seed 1"));
  }

  const Outcome texts =
      platform_->ctl({"jobs", "heads", "--model", support::kTinyModel, "--text",
                      "The cat sat on the mat and saw seven birds .", "--criterion", "entropy"});
  ASSERT_EQ(texts.code, 0) << texts.err;
  EXPECT_EQ(texts.json().at("calibration").at("sequences"), 1);
  EXPECT_THAT(texts.json().at("warnings").dump(), HasSubstr("calibration_small"));
}

TEST_F(EvaluationTest, HeadsOfBaseAndAdapterAreThoseOfTheEngineAlone) {
  const fs::path file = *directory_ / "wiki.test.raw";
  const std::vector<std::string> sizes = {"--set", "n_sequences=3", "--set", "seq_length=64"};
  const Outcome followed =
      platform_->ctl(support::with({"evaluations", "create", "--adapter", *adapter_, "--task",
                                    "head-analysis", "--file", file, "--seed", "5", "--follow"},
                                   sizes));
  ASSERT_EQ(followed.code, 0) << followed.err;
  const auto result = followed.json().at("results").at(0);
  const auto got = rows(result.at("rows"));
  const fs::path folder = *directory_ / "heads" / "adapter";  // its last name is the subject's
  ASSERT_EQ(platform_->ctl({"adapters", "download", *adapter_, folder}).code, 0);
  const Outcome alone = support::run_program(
      "dex-engine", {"evaluate", "head_analysis", "--model",
                     *directory_ / "models" / support::kTinyModel, "--adapter", folder, "--file",
                     file, "--n-sequences", "3", "--seq-length", "64", "--seed", "5", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto all = nlohmann::json::parse(alone.out).at("rows");
  for (const auto& [name, row] : rows(all)) {
    ASSERT_TRUE(got.contains(name)) << name;
    EXPECT_EQ(got.at(name).at("value"), row.at("value")) << name;
  }
  EXPECT_NE(got.at("adapter entropy").at("value"), got.at("base entropy").at("value"));
  // A head's own number stands in its place of the table.
  const auto tables = result.at("head_tables");
  const auto entropy = std::find_if(tables.begin(), tables.end(), [](const auto& table) {
    return table.at("metric") == "entropy" && table.at("subject") == "base";
  });
  ASSERT_NE(entropy, tables.end());
  const auto head = std::find_if(all.begin(), all.end(), [](const auto& row) {
    return row.at("metric") == "entropy" && row.at("subject") == "base" &&
           row.at("dims") == nlohmann::json({{"layer", "2"}, {"head", "3"}});
  });
  ASSERT_NE(head, all.end());
  EXPECT_EQ(entropy->at("layers").at(2).at("value").at(3), head->at("value"));
  const std::string id = followed.json().at("id");
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "get", id}).out, HasSubstr("entropy of base: "));
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "get", id, "--markdown"}).out,
              HasSubstr("heads-1-base.svg"));
  const fs::path report = *directory_ / "report";
  const Outcome written = platform_->ctl({"evaluations", "get", id, "--out", report});
  ASSERT_EQ(written.code, 0) << written.err;
  EXPECT_THAT(written.out, Not(HasSubstr("<svg"))) << "pictures are in the folder";
  EXPECT_THAT(content(report / "report.md"), HasSubstr("(heads-1-base.svg)"));
  for (const char* name : {"heads-1-base.svg", "heads-1-adapter.svg"})
    EXPECT_THAT(content(report / name), StartsWith("<svg")) << name;
}

TEST_F(EvaluationTest, SeveralTasksAndFilesInTheirPublishedFormats) {
  std::ofstream(*directory_ / "mmlu.csv")
      << "What is two?,1,2,3,4,B\nWhat is three?,1,2,3,4,C\n\"One, or more?\",1,2,3,4,A\n";
  std::ofstream(*directory_ / "Age.jsonl")
      << R"({"context": "A man and a boy met.", "question": "Who was old?", "ans0": "The man",)"
      << R"( "ans1": "The boy", "ans2": "Unknown", "label": 0, "category": "Age",)"
      << R"( "context_condition": "ambig"})"
      << "\n";
  std::ofstream(*directory_ / "nq.jsonl")
      << R"({"question": "Who sat?", "context": "The cat sat.", "answers": ["the cat"]})"
      << "\n";
  std::ofstream(*directory_ / "spec.json")
      << R"({"subjects": [{"model": "tiny-random"}], "tasks": [)"
      << R"({"multiple_choice": {"file": ")" << (*directory_ / "mmlu.csv").string() << R"("}},)"
      << R"({"multiple_choice": {"file": ")" << (*directory_ / "Age.jsonl").string() << R"("}},)"
      << R"({"answers": {"file": ")" << (*directory_ / "nq.jsonl").string()
      << R"(", "max_tokens": 4}}]})";
  const Outcome outcome =
      platform_->ctl({"evaluations", "create", "--spec", *directory_ / "spec.json", "--follow"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto results = outcome.json().at("results");
  ASSERT_EQ(results.size(), 3U);
  EXPECT_EQ(rows(results[0].at("rows")).at("base acc").at("n"), "3") << "64 bits are strings";
  EXPECT_EQ(rows(results[1].at("rows")).at("base acc").at("interval"), "INTERVAL_WILSON");
  EXPECT_TRUE(rows(results[2].at("rows")).contains("base f1"));

  const std::string id = outcome.json().at("id");
  const Outcome all = platform_->ctl({"evaluations", "samples", id});
  ASSERT_EQ(all.code, 0) << all.err;
  EXPECT_EQ(all.json().at("samples").size(), 3U + 1U + 1U);
  const Outcome second = platform_->ctl({"evaluations", "samples", id, "--task", "tasks[1]"});
  ASSERT_EQ(second.json().at("samples").size(), 1U) << second.err;
  EXPECT_EQ(second.json().at("samples")[0].at("expected"), "The man");
  EXPECT_EQ(second.json().at("samples")[0].at("dims").at("category"), "Age");
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "samples", id, "--task", "answers"}).out,
              HasSubstr("the cat"));
}

TEST_F(EvaluationTest, AnswersToInstructionsAreDownloadedInAlpacaEvalsFormat) {
  std::ofstream(*directory_ / "alpaca.json")
      << R"([{"instruction": "Name a cat."}, {"instruction": "Name a dog."}])";
  const Outcome outcome =
      platform_->ctl({"evaluations", "create", "--adapter", *adapter_, "--task", "instructions",
                      "--file", *directory_ / "alpaca.json", "--set", "max_tokens=4", "--follow"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto result = outcome.json().at("results").at(0);
  EXPECT_EQ(result.at("files").size(), 4U);
  const std::string id = outcome.json().at("id");
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "get", id}).out,
              HasSubstr("dexctl evaluations download " + id));
  const fs::path folder = *directory_ / "answers";
  ASSERT_EQ(platform_->ctl({"evaluations", "download", id, folder}).code, 0);
  std::ifstream file(folder / "instructions-1-outputs-adapter.json");
  const auto outputs = nlohmann::json::parse(file);
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].at("instruction"), "Name a dog.");
  EXPECT_EQ(outputs[1].at("generator"), "adapter");
  EXPECT_TRUE(fs::exists(folder / "instructions-1-pairs-adapter.key.json"));
  EXPECT_TRUE(fs::exists(folder / "report.md"));
}

TEST_F(EvaluationTest, AFileInTheWrongFormatEndsItWithLineAndReason) {
  std::ofstream(*directory_ / "bad.csv") << "What is two?,1,2,3,4,B\nWhat is three?,1,2\n";
  const Outcome outcome =
      platform_->ctl({"evaluations", "create", "--model", support::kTinyModel, "--task",
                      "multiple_choice", "--file", *directory_ / "bad.csv", "--follow"});
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  const auto error = outcome.json().at("error");
  EXPECT_EQ(error.at("code"), "invalid_evaluation_file");
  EXPECT_EQ(error.at("param"), "tasks[0].multiple_choice");
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("bad.csv"));
  EXPECT_THAT(error.at("message").get<std::string>(), HasSubstr("line 2"));
}

// Attempt 2 goes on behind the last task that attempt 1 has kept, and every number is the same.
TEST_F(EvaluationTest, AKilledEvaluatorChangesNoNumber) {
  std::ofstream(*directory_ / "long.json")
      << R"({"subjects": [{"model": "tiny-random"}], "seed": 1, "tasks": [)"
      << R"({"perplexity": {"file": ")" << (*directory_ / "wiki.test.raw").string() << R"("}},)"
      << R"({"multi_needle": {"file": ")" << (*directory_ / "wiki.test.raw").string()
      << R"(", "lengths": [512], "n_needles": 2, "n_queries": 1, "samples_per_cell": 100}}]})";
  const std::vector<std::string> create = {"evaluations", "create", "--spec",
                                           *directory_ / "long.json"};
  const Outcome straight = platform_->ctl(support::with(create, {"--follow"}));
  ASSERT_EQ(straight.code, 0) << straight.err;

  const std::string id = platform_->ctl(create).json().at("id");
  const auto kept = [&] {  // the first task lies on the disk
    std::error_code none;
    const fs::path job = platform_->data_dir() / "jobs/default" / id;
    for (const auto& attempt : fs::directory_iterator(job, none))
      if (fs::exists(attempt.path() / "step-1/MANIFEST.json", none)) return true;
    return false;
  };
  ASSERT_TRUE(support::eventually(kept, 120'000));
  const pid_t evaluator = held_evaluator();
  ASSERT_GT(evaluator, 0);
  ASSERT_EQ(kill(evaluator, SIGKILL), 0);
  const Outcome watched = platform_->ctl({"evaluations", "watch", id});
  ASSERT_EQ(watched.code, 0) << watched.err;
  EXPECT_EQ(watched.json().at("attempt"), 2);
  EXPECT_EQ(watched.json().at("results"), straight.json().at("results"));
}

// A job is judged by a task on base and new adapter; its figures are those of the engine alone.
TEST_F(EvaluationTest, GatesOverPerplexityPassAndFail) {
  const fs::path file = *directory_ / "wiki.test.raw";
  const std::string task = "perplexity(" + file.string() + ", context_length=128)";
  const Outcome outcome = platform_->ctl(
      support::with(support::small_job(*training_, *training_, 6, support::kTinyModel),
                    {"--promote-if", task + ".loss<=100", "--promote-if",
                     task + ".perplexity<=-1e6", "--follow"}));
  EXPECT_EQ(outcome.code, 7) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("gate perplexity.loss passed"));
  const auto job = outcome.json();
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("promotable"), false);
  EXPECT_EQ(job.at("progress").at("step"), 6) << "the training's figures stay";
  const auto results = job.at("gate_results");
  ASSERT_EQ(results.size(), 2U);
  EXPECT_EQ(results[0].at("passed"), true);
  EXPECT_EQ(results[1].at("passed"), false);
  EXPECT_EQ(results[1].at("condition"), "perplexity.perplexity - base <= -1000000, high end");

  const fs::path folder = *directory_ / "gated-adapter";
  const std::string adapter = job.at("fine_tuned_model");
  ASSERT_EQ(platform_->ctl({"adapters", "download", adapter, folder}).code, 0);
  const Outcome alone = support::run_program(
      "dex-engine",
      {"evaluate", "perplexity", "--model", *directory_ / "models" / support::kTinyModel,
       "--adapter", folder, "--file", file, "--context-length", "128", "--json"});
  ASSERT_EQ(alone.code, 0) << alone.err;
  const auto expected = rows(nlohmann::json::parse(alone.out).at("rows"));
  for (const auto& [index, metric] : {std::pair<size_t, std::string>{0, "loss"},
                                      std::pair<size_t, std::string>{1, "perplexity"}}) {
    const auto& row = expected.at("gated-adapter " + metric);
    EXPECT_EQ(results[index].at("value"), row.at("delta")) << metric;
    EXPECT_EQ(results[index].at("low"), row.at("delta_low"));
    EXPECT_EQ(results[index].at("high"), row.at("delta_high"));
  }
  EXPECT_THAT(platform_->plain_ctl({"jobs", "get", job.at("id").get<std::string>()}).out,
              HasSubstr("not passed: perplexity.perplexity - base"));
}

class EvaluationOfGatesTest : public EvaluationTest {
 protected:
  struct Measured {
    std::string id;
    pid_t evaluator;  // held
  };
  // A job whose training is done, as the scheduler knows, and whose gate is being measured: needles
  // in the text that comes with the platform.
  static Measured job_at_its_gate() {
    const std::string task =
        "multi_needle(lengths=512, n_needles=2, n_queries=1, samples_per_cell=100).accuracy>=-1";
    const std::string id =
        platform_
            ->ctl(support::with(support::small_job(*training_, *training_, 6, support::kTinyModel),
                                {"--promote-if", task}))
            .json()
            .at("id");
    const pid_t evaluator = held_evaluator();
    const auto trained = [&] {
      return platform_->ctl({"jobs", "get", id}).json().value("last_checkpoint", "") == "gates-0";
    };
    EXPECT_TRUE(support::eventually(trained, 120'000));
    return {id, evaluator};
  }
  static fs::path attempts_of(const std::string& id) {
    return platform_->data_dir() / "jobs/default" / id;
  }
  static void expect_published_by(int attempt, const std::string& id) {
    const Outcome watched = platform_->ctl({"jobs", "watch", id});
    ASSERT_EQ(watched.code, 0) << watched.err;
    EXPECT_EQ(watched.json().at("attempt"), attempt);
    EXPECT_EQ(watched.json().at("gate_results").at(0).at("passed"), true);
    int trainers = 0;
    for (const auto& each : fs::directory_iterator(attempts_of(id)))
      trainers += fs::exists(each.path() / "trainer.log") ? 1 : 0;
    EXPECT_EQ(trainers, 1);
  }
};

TEST_F(EvaluationOfGatesTest, AKilledEvaluatorIsStartedAgainInItsAttempt) {
  const Measured job = job_at_its_gate();
  ASSERT_GT(job.evaluator, 0);
  ASSERT_EQ(kill(job.evaluator, SIGKILL), 0);
  expect_published_by(1, job.id);
}

// Attempt 2 publishes what attempt 1 has trained.
TEST_F(EvaluationOfGatesTest, AKilledPlatformTrainsNothingAgain) {
  const Measured job = job_at_its_gate();
  ASSERT_GT(job.evaluator, 0);
  const auto engines = platform_->processes("dex-engine");
  ASSERT_EQ(kill(platform_->pid(), SIGKILL), 0);
  ASSERT_EQ(kill(job.evaluator, SIGCONT), 0);
  for (const pid_t engine : engines)
    ASSERT_TRUE(support::eventually([&] { return kill(engine, 0) != 0; }, 30'000));
  platform_->start();
  expect_published_by(2, job.id);
}

TEST_F(EvaluationTest, ACancelledOneStopsAndItsEvaluatorIsGone) {
  std::ofstream(*directory_ / "endless.json")
      << R"({"subjects": [{"model": "tiny-random"}], "tasks": [{"multi_needle": {"file": ")"
      << (*directory_ / "wiki.test.raw").string()
      << R"(", "lengths": [1000], "samples_per_cell": 1000}}]})";
  const std::string id =
      platform_->ctl({"evaluations", "create", "--spec", *directory_ / "endless.json"})
          .json()
          .at("id");
  ASSERT_TRUE(
      support::eventually([&] { return platform_->processes("dex-engine").size() == 2; }, 120'000));
  EXPECT_EQ(platform_->ctl({"evaluations", "cancel", id, "--wait"}).code, 0);
  EXPECT_TRUE(
      support::eventually([&] { return platform_->processes("dex-engine").size() == 1; }, 60'000));
  EXPECT_EQ(platform_->ctl({"evaluations", "get", id}).json().at("state"), "JOB_STATE_CANCELLED");
}

}  // namespace
}  // namespace dex
