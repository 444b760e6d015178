// What is compared in pairs through every process: a job's result with another adapter and with the
// control, and two evaluations. The reference is one evaluation of both, whose engine compares them
// itself.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/e2e/small_job.h"
#include "tests/support/tiny_model.h"

namespace dex {
namespace {

using nlohmann::json;
using support::Outcome;
using support::RunningPlatform;
using testing::HasSubstr;
namespace fs = std::filesystem;

// One platform for all tests, with an adapter and the control of its job.
class EvaluationPairsTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    directory_ = new support::TemporaryDirectory;
    platform_ = new RunningPlatform(*directory_ / "data",
                                    support::write_tiny_model(*directory_ / "models"));
    platform_->start();
    names_ = new Names;
    names_->training = platform_->upload_rows("code", "train", 20);
    names_->validation = platform_->upload_rows("code", "validation", 10);
    names_->adapter = trained(dex_job());
    names_->control = trained({"jobs",
                               "create",
                               "--model",
                               support::kTinyModel,
                               "--training-file",
                               names_->training,
                               "--validation-file",
                               names_->validation,
                               "--method",
                               "kvo_only",
                               "--preset",
                               "code",
                               "--max-steps",
                               "6",
                               "--batch-size",
                               "2",
                               "--max-seq-length",
                               "128",
                               "--seed",
                               "1",
                               "--yes"});
    std::ofstream text(*directory_ / "wiki.test.raw");
    for (int i = 0; i < 150; ++i)
      text << "The cat number " << i << " sat on the mat and saw " << i * 7 << " birds .\n";
  }
  static void TearDownTestSuite() {
    delete platform_;
    delete directory_;
    delete names_;
  }

  static std::vector<std::string> dex_job() {
    return support::small_job(names_->training, names_->validation, 6, support::kTinyModel);
  }
  static std::string trained(const std::vector<std::string>& job) {
    const Outcome outcome = platform_->ctl(support::with(job, {"--follow"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json().at("fine_tuned_model");
  }
  static std::string wiki() { return (*directory_ / "wiki.test.raw").string(); }
  // Perplexity of these subjects, the first being what the others are compared with.
  static json evaluation(const json& subjects, int context_length = 128) {
    const json task = {{"perplexity", {{"file", wiki()}, {"context_length", context_length}}}};
    std::ofstream(*directory_ / "spec.json")
        << json{{"subjects", subjects}, {"tasks", json::array({task})}}.dump();
    const Outcome outcome =
        platform_->ctl({"evaluations", "create", "--spec", *directory_ / "spec.json", "--follow"});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return outcome.json();
  }
  static json subject(const std::string& adapter, const std::string& label) {
    return {{"adapter", adapter}, {"label", label}};
  }
  static json base() { return {{"model", support::kTinyModel}, {"label", "base"}}; }
  // The row of the subject's loss over everything.
  static json loss_of(const json& evaluation, const std::string& subject) {
    for (const auto& row : evaluation.at("results").at(0).at("rows")) {
      if (row.at("subject") == subject && row.at("metric") == "loss") return row;
    }
    ADD_FAILURE() << "no row of " << subject;
    return {};
  }

  struct Names {
    std::string training, validation, adapter, control;
  };
  static support::TemporaryDirectory* directory_;
  static RunningPlatform* platform_;
  static Names* names_;
};
support::TemporaryDirectory* EvaluationPairsTest::directory_ = nullptr;
RunningPlatform* EvaluationPairsTest::platform_ = nullptr;
EvaluationPairsTest::Names* EvaluationPairsTest::names_ = nullptr;

TEST_F(EvaluationPairsTest, GatesAgainstAnAdapterAndTheControlSayWhatOneEvaluationSays) {
  const std::string loss = "perplexity(" + wiki() + ", context_length=128).loss";
  const Outcome outcome = platform_->ctl(support::with(
      dex_job(), {"--promote-if", loss + "<=0 against " + names_->adapter, "--promote-if",
                  loss + "<=100 against kvo_only " + names_->control, "--follow"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto results = outcome.json().at("gate_results");
  ASSERT_EQ(results.size(), 2U);
  // The same job was trained before, to the same bits.
  EXPECT_EQ(results[0].at("value"), 0.0);
  EXPECT_EQ(results[0].at("low"), 0.0);
  EXPECT_EQ(results[0].at("high"), 0.0);
  EXPECT_EQ(results[0].at("condition"), "perplexity.loss - " + names_->adapter + " <= 0, high end");

  const std::string result = outcome.json().at("fine_tuned_model");
  const auto row = loss_of(
      evaluation(json::array({subject(names_->control, "control"), subject(result, "result")})),
      "result");
  EXPECT_EQ(results[1].at("value"), row.at("delta"));
  EXPECT_EQ(results[1].at("low"), row.at("delta_low"));
  EXPECT_EQ(results[1].at("high"), row.at("delta_high"));
  EXPECT_EQ(results[1].at("n"), row.at("n"));
  EXPECT_THAT(outcome.err, HasSubstr("of one seed each"));
}

TEST_F(EvaluationPairsTest, AGateOnAnAdapterThatIsNotThereIsRefusedAtOnce) {
  const Outcome outcome = platform_->ctl(
      support::with(dex_job(), {"--promote-if", "perplexity(" + wiki() +
                                                    ").loss<=0 against ft:tiny-random:default::"
                                                    "00000000000000000000000000"}));
  EXPECT_EQ(outcome.code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("gates[0].adapter"));
}

TEST_F(EvaluationPairsTest, TwoEvaluationsAreComparedAsOneWouldAndCanBeDeleted) {
  const auto a = evaluation(json::array({base(), subject(names_->adapter, "dex")}));
  const auto b = evaluation(json::array({base(), subject(names_->control, "control")}));
  const std::string id_a = a.at("id"), id_b = b.at("id");
  const auto reference = loss_of(evaluation(json::array({subject(names_->adapter, "dex"),
                                                         subject(names_->control, "control")})),
                                 "control");
  const Outcome outcome = platform_->ctl({"evaluations", "compare", id_a, id_b});
  ASSERT_TRUE(outcome.code == 0 || outcome.code == 7) << outcome.err;
  const auto differences = outcome.json().at("differences");
  bool worse = false, seen = false;
  for (const auto& row : differences) {
    worse = worse || row.at("verdict") == "VERDICT_WORSE";
    if (row.at("subject_a") == "base") {
      EXPECT_EQ(row.at("delta"), 0.0) << "the same base on the same text";
    } else if (row.at("metric") == "loss") {
      seen = true;
      EXPECT_EQ(row.at("subject_b"), "control");
      EXPECT_EQ(row.at("delta"), reference.at("delta"));
      EXPECT_EQ(row.at("delta_low"), reference.at("delta_low"));
      EXPECT_EQ(row.at("delta_high"), reference.at("delta_high"));
      EXPECT_EQ(row.at("verdict"), reference.at("verdict"));
      EXPECT_EQ(row.at("n"), reference.at("n"));
      EXPECT_EQ(row.at("value_a"), loss_of(a, "dex").at("value"));
      EXPECT_EQ(row.at("value_b"), loss_of(b, "control").at("value"));
    }
  }
  EXPECT_TRUE(seen) << outcome.out;
  EXPECT_EQ(outcome.code, worse ? 7 : 0);
  EXPECT_THAT(platform_->plain_ctl({"evaluations", "compare", id_a, id_b}).out, HasSubstr("B - A"));

  const std::string other = evaluation(json::array({base()}), 64).at("id");
  const Outcome refused = platform_->ctl(
      {"evaluations", "compare", id_a, other, "--subject-a", "base", "--subject-b", "base"});
  EXPECT_EQ(refused.code, 3);
  EXPECT_THAT(refused.err, HasSubstr("perplexity.context_length is 128 and 64"));

  EXPECT_EQ(platform_->ctl({"evaluations", "delete", id_a}).code, 2) << "nobody can be asked";
  EXPECT_TRUE(fs::exists(platform_->data_dir() / "jobs/default" / id_a));
  EXPECT_EQ(platform_->ctl({"evaluations", "delete", id_a, "--yes"}).code, 0);
  EXPECT_FALSE(fs::exists(platform_->data_dir() / "jobs/default" / id_a));
  EXPECT_EQ(platform_->ctl({"evaluations", "get", id_a}).code, 3);
  EXPECT_EQ(platform_->ctl({"evaluations", "compare", id_a, id_b}).code, 3);
}

}  // namespace
}  // namespace dex
