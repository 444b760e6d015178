// The Differential Transformer through every process, on tiny random models: what method diff makes
// in both its versions, and a DiffLlama as base. From job and gate to a model that is listed,
// served, measured, trained further and exported; and what has no meaning on such models.
#include <gmock/gmock.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using nlohmann::json;
using support::Outcome;
using support::RunningPlatform;
using support::with;
using testing::HasSubstr;
namespace fs = std::filesystem;

constexpr const char* kV1 = "tiny-v1";
constexpr const char* kV2 = "tiny-v2";

// One platform, which starts anew once the converted models are in its list.
class DifferentialTest : public testing::Test {
 protected:
  struct Shared {
    support::TemporaryDirectory directory;
    fs::path models = support::write_tiny_models(directory / "models");
    RunningPlatform platform{directory / "data", models};
    std::string training, text;
    json v1, v2, lora;  // finished jobs; lora's is on the DiffLlama
  };

  static void SetUpTestSuite() {
    shared_ = std::make_unique<Shared>();
    shared_->text = (shared_->directory / "wiki.test.raw").string();
    std::ofstream text(shared_->text);
    for (int i = 0; i < 120; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
    text.close();
    shared_->platform.start();
    shared_->training = shared_->platform.upload_rows("code", "train", 20);
    shared_->v1 = finished(support::kTinyModel, with(diff("V1"), gate()));
    shared_->v2 = finished(support::kTinyModel, diff("V2"));
    shared_->lora = finished(support::kTinyDiffLlama, with(loud_lora(), gate()));
    add_model(kV1, shared_->v1);
    add_model(kV2, shared_->v2);
    EXPECT_EQ(shared_->platform.stop(), 0) << shared_->platform.log();
    shared_->platform.start();
  }
  static void TearDownTestSuite() { shared_.reset(); }

  static std::vector<std::string> diff(const std::string& version) {
    return {"--method", "diff", "--set", "diff.version=" + version};
  }
  // A scale that two updates from B = 0 can be heard with.
  static std::vector<std::string> loud_lora() {
    return {"--method", "lora", "--set", "lora.alpha=128"};
  }
  static std::vector<std::string> gate() {
    return {"--promote-if", "perplexity(" + shared_->text + ", context_length=128).loss<=100"};
  }
  static Outcome job(const std::string& model, const std::vector<std::string>& more) {
    return shared_->platform.ctl(with({"jobs",
                                       "create",
                                       "--model",
                                       model,
                                       "--training-file",
                                       shared_->training,
                                       "--validation-file",
                                       shared_->training,
                                       "--max-steps",
                                       "2",
                                       "--batch-size",
                                       "2",
                                       "--max-seq-length",
                                       "128",
                                       "--seed",
                                       "1",
                                       "--set",
                                       "evaluation.max_tokens=384",
                                       "--yes",
                                       "--follow"},
                                      more));
  }
  static json finished(const std::string& model, const std::vector<std::string>& more) {
    const Outcome outcome = job(model, with({"--learning-rate", "0.01"}, more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  }
  static std::string made_by(const json& job) { return job.at("fine_tuned_model"); }
  static void add_model(const std::string& name, const json& job) {
    const Outcome added = shared_->platform.ctl(
        {"models", "add", name, "--list", shared_->models, "--adapter", made_by(job)});
    EXPECT_EQ(added.code, 0) << added.err;
  }

  static fs::path folder_of(const std::string& model) {
    return shared_->models.parent_path() / model;
  }
  static Outcome engine(const std::vector<std::string>& args) {
    Outcome outcome = support::run_program("dex-engine", args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome;
  }
  static std::vector<std::string> greedy() {
    return {"--prompt",      "def add(a, b):\n    return a + b\n\ndef sub(a, b):",
            "--max-tokens",  "12",
            "--temperature", "0"};
  }
  static std::string served_text(const std::string& model) {
    const Outcome outcome = shared_->platform.ctl(with({"generate", model}, greedy()));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.code == 0 ? outcome.json().at("text").get<std::string>() : "";
  }
  static std::string text_alone(const std::vector<std::string>& model) {
    return engine(with(with({"generate"}, model), greedy())).out;
  }

  // A row over everything; NaN: there is none.
  static json row_of(const json& rows, const std::string& subject, const std::string& metric) {
    for (const auto& row : rows) {
      if (row.value("dims", json::object()).empty() && row.at("subject") == subject &&
          row.at("metric") == metric)
        return row;
    }
    ADD_FAILURE() << "no " << metric << " of " << subject;
    return {{"value", std::numeric_limits<double>::quiet_NaN()}};
  }
  static double value_of(const json& rows, const std::string& subject, const std::string& metric) {
    return row_of(rows, subject, metric).at("value");
  }
  // Rows of the engine alone.
  static json perplexity_alone(const std::vector<std::string>& model) {
    const Outcome outcome = engine(with(
        {"evaluate", "perplexity", "--file", shared_->text, "--context-length", "128", "--json"},
        model));
    return json::parse(outcome.out).at("rows");
  }
  static json heads_alone(const std::vector<std::string>& model) {
    const Outcome outcome =
        engine(with({"evaluate", "head_analysis", "--file", shared_->text, "--n-sequences", "2",
                     "--seq-length", "64", "--seed", "0", "--json"},
                    model));
    return json::parse(outcome.out).at("rows");
  }

  // The results of perplexity and heads, as the platform measures them.
  static json measured(const json& subjects) {
    const json perplexity = {{"file", shared_->text}, {"context_length", 128}};
    const json heads = {{"file", shared_->text}, {"n_sequences", 2}, {"seq_length", 64}};
    const json tasks =
        json::array({json{{"perplexity", perplexity}}, json{{"head_analysis", heads}}});
    const fs::path spec = shared_->directory / "evaluation.json";
    std::ofstream(spec) << json{{"subjects", subjects}, {"tasks", tasks}}.dump();
    const Outcome outcome =
        shared_->platform.ctl({"evaluations", "create", "--spec", spec, "--follow"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json().at("results");
  }
  static void expect_signed_maps(const json& rows, const std::string& subject) {
    EXPECT_GT(value_of(rows, subject, "negative_mass"), 0) << subject;
    EXPECT_GT(value_of(rows, subject, "negative_share"), 0) << subject;
  }
  // Every number over all heads is the engine's own.
  static void expect_same_heads(const json& rows, const json& alone) {
    size_t compared = 0;
    for (const auto& row : alone) {
      if (!row.value("dims", json::object()).empty()) continue;
      const std::string subject = row.at("subject"), metric = row.at("metric");
      EXPECT_EQ(row_of(rows, subject, metric).at("value"), row.at("value"))
          << subject << " " << metric;
      ++compared;
    }
    EXPECT_GT(compared, 5U);
  }

  static std::vector<double> scores(const std::vector<std::string>& model) {
    return engine(with({"score", "--dtype", "f32", "--tokens", "1,2,3,28,30,198,504,4041"}, model))
        .json()
        .get<std::vector<double>>();
  }
  // Folds the adapter into a plain model, which then gives what base and adapter give.
  static fs::path exported(const std::string& adapter, const fs::path& base,
                           const std::string& name) {
    const fs::path folded = shared_->directory / name / "folded",
                   mine = shared_->directory / name / "adapter";
    fs::create_directories(folded.parent_path());
    const Outcome outcome = shared_->platform.ctl(
        {"adapters", "export", adapter, "--folded", "--dtype", "fp32", "--out", folded});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(outcome.json().at("certificate").at("largest_logit_difference").get<double>(), 1e-3);
    EXPECT_EQ(shared_->platform.ctl({"adapters", "download", adapter, mine}).code, 0);
    const auto alone = scores({"--model", folded}),
               adapted = scores({"--model", base, "--adapter", mine}),
               without = scores({"--model", base});
    EXPECT_EQ(alone.size(), adapted.size());
    EXPECT_NE(adapted, without);
    for (size_t i = 0; i < alone.size() && i < adapted.size(); ++i)
      EXPECT_NEAR(alone[i], adapted[i], 1e-3) << i;
    return folded;
  }

  static std::unique_ptr<Shared> shared_;
};
std::unique_ptr<DifferentialTest::Shared> DifferentialTest::shared_;

TEST_F(DifferentialTest, MethodDiffPublishesAModelThatPassesItsGate) {
  const json& job = shared_->v1;
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("promotable"), true);
  const json adapter = shared_->platform.ctl({"adapters", "get", made_by(job)}).json();
  EXPECT_EQ(adapter.at("method"), "diff");
  EXPECT_EQ(adapter.at("artifact_class"), "MODEL");
  // The gate's figure is the difference of two models that the engine alone measures.
  const double was = value_of(perplexity_alone({"--model", folder_of(support::kTinyModel)}), "base",
                              "loss"),
               is = value_of(perplexity_alone({"--model", folder_of(kV1)}), "base", "loss");
  EXPECT_GT(std::abs(is - was), 1e-3);
  EXPECT_NEAR(job.at("gate_results").at(0).at("value").get<double>(), is - was, 1e-6);
}

TEST_F(DifferentialTest, ConvertedModelsAreListedAndServed) {
  for (const std::string model : {kV1, kV2}) {
    const json shown = shared_->platform.ctl({"models", "show", model}).json();
    EXPECT_EQ(shown.at("differential"), true) << model;
    const json config = json::parse(std::ifstream(folder_of(model) / "config.json"));
    EXPECT_EQ(config.at("differential_attention").at("version"), model == kV1 ? "V1" : "V2");
    const std::string text = served_text(model);
    EXPECT_FALSE(text.empty()) << model;
    EXPECT_EQ(text_alone({"--model", folder_of(model)}), text + "\n") << model;
  }
}

TEST_F(DifferentialTest, AConvertedModelIsMeasuredWithItsNegativeMass) {
  const json subject = {{"model", kV1}};
  const json results = measured(json::array({subject}));
  EXPECT_EQ(value_of(results[0].at("rows"), "base", "loss"),
            value_of(perplexity_alone({"--model", folder_of(kV1)}), "base", "loss"));
  expect_signed_maps(results[1].at("rows"), "base");
  EXPECT_THAT(results[1].at("notes").dump(), HasSubstr("|M| renormalised"));
  expect_same_heads(results[1].at("rows"), heads_alone({"--model", folder_of(kV1)}));
  // Before it was converted no entry was negative.
  EXPECT_EQ(
      value_of(heads_alone({"--model", folder_of(support::kTinyModel)}), "base", "negative_mass"),
      0);
}

TEST_F(DifferentialTest, AConvertedModelIsTrainedFurtherAndExported) {
  const json job = finished(kV2, loud_lora());
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_FALSE(served_text(made_by(job)).empty());
  const fs::path folded = exported(made_by(job), folder_of(kV2), "of-v2");
  const json config = json::parse(std::ifstream(folded / "config.json"));
  EXPECT_EQ(config.at("differential_attention").at("version"), "V2");
}

TEST_F(DifferentialTest, AnAdapterOfADiffLlamaIsJudgedServedMeasuredAndExported) {
  const json& job = shared_->lora;
  EXPECT_EQ(job.at("state"), "JOB_STATE_SUCCEEDED");
  EXPECT_EQ(job.at("promotable"), true);
  const std::string adapter = made_by(job);
  const fs::path base = folder_of(support::kTinyDiffLlama);
  const fs::path folded = exported(adapter, base, "of-diffllama");
  EXPECT_EQ(json::parse(std::ifstream(folded / "config.json")).at("model_type"), "diffllama");
  const std::vector<std::string> model = {"--model", base, "--adapter",
                                          shared_->directory / "of-diffllama" / "adapter"};

  const std::string text = served_text(adapter);
  EXPECT_NE(text, served_text(support::kTinyDiffLlama));
  EXPECT_EQ(text_alone(model), text + "\n");

  const json alone = perplexity_alone(model);
  EXPECT_EQ(job.at("gate_results").at(0).at("value"), row_of(alone, "adapter", "loss").at("delta"));
  const json alone_subject = {{"model", support::kTinyDiffLlama}},
             adapted_subject = {{"model", support::kTinyDiffLlama}, {"adapter", adapter}};
  const json results = measured(json::array({alone_subject, adapted_subject}));
  for (const char* subject : {"base", "adapter"}) {
    EXPECT_EQ(value_of(results[0].at("rows"), subject, "loss"), value_of(alone, subject, "loss"));
    expect_signed_maps(results[1].at("rows"), subject);
  }
  expect_same_heads(results[1].at("rows"), heads_alone(model));
  EXPECT_NE(value_of(results[1].at("rows"), "adapter", "negative_mass"),
            value_of(results[1].at("rows"), "base", "negative_mass"));
}

TEST_F(DifferentialTest, WhatHasNoMeaningIsRefusedWithTheWayOut) {
  const std::string way_out = "use kvo_only, lora, adapter or full";
  const auto expect_refused = [](const Outcome& outcome, const std::vector<std::string>& parts) {
    EXPECT_EQ(outcome.code, 3) << outcome.err;
    for (const std::string& part : parts) EXPECT_THAT(outcome.err, HasSubstr(part));
  };
  for (const char* model : {support::kTinyDiffLlama, kV1}) {
    expect_refused(job(model, {"--preset", "paper"}), {"dex has no defined meaning", way_out});
    expect_refused(job(model, diff("V2")), {"diff has nothing to convert", way_out});
  }
  expect_refused(shared_->platform.ctl({"jobs", "heads", "--model", support::kTinyDiffLlama,
                                        "--file", shared_->training}),
                 {"dex has no defined meaning"});
  // What diff makes has other heads than its base, so nothing can be held head by head.
  expect_refused(
      job(support::kTinyModel,
          with(diff("V1"), {"--promote-if", "head_analysis(" + shared_->text + ").entropy<=100"})),
      {"compares head by head"});
  const std::string made = made_by(shared_->v1);
  expect_refused(
      shared_->platform.ctl({"evaluations", "create", "--adapter", made, "--task", "head-analysis",
                             "--file", shared_->text, "--set", "seq_length=64"}),
      {"compares head by head", "of method diff has other heads than its base"});
  expect_refused(shared_->platform.ctl({"adapters", "export", made, "--folded", "--out",
                                        shared_->directory / "never"}),
                 {"NOT_FOLDABLE", "is a whole model already"});
  EXPECT_FALSE(fs::exists(shared_->directory / "never"));
  expect_refused(job(support::kTinyModel, with(diff("V1"), {"--set", "diff.mix_in_ratio=0"})),
                 {"diff.mix_in_ratio"});
}

}  // namespace
}  // namespace dex
