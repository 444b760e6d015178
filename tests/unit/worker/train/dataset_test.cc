#include "worker/train/dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/worker/train/job_fixture.h"

namespace dex::train::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Rows of ids need no tokenizer, so the tiny model's folder is enough.
class DatasetTest : public JobTest {
 protected:
  JobSpec on(const std::string& rows) const {
    std::ofstream(directory_ / "rows.jsonl") << rows;
    JobSpec spec = this->spec();
    spec.training_path = directory_ / "rows.jsonl";
    return spec;
  }
  Dataset load(const JobSpec& spec) {
    session_ = {};
    return load_dataset(spec, tiny_config(), session_, [](Phase) {});
  }
  std::string refusal(const JobSpec& spec) {
    try {
      load(spec);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.exit(), Exit::kBadData);
      EXPECT_EQ(failure.param(), "rows.jsonl");
      return failure.what();
    }
    return "accepted";
  }
  // The messages of all warnings.
  std::vector<std::string> warnings() const {
    std::vector<std::string> out;
    for (const Event& event : session_.events) {
      if (event.type == "warning") out.push_back(event.message);
    }
    return out;
  }
  std::string summary() const {
    for (const Event& event : session_.events) {
      if (event.type == "validation_complete") return event.message;
    }
    return "";
  }
  static std::string row(size_t length, int first = 0, const std::string& more = "") {
    std::vector<int32_t> ids(length, 1);
    ids.front() = first;
    const std::string list = nlohmann::json(ids).dump();
    return "{\"input_ids\": " + list + ", \"labels\": " + list + more + "}\n";
  }
  static std::string rows(int count, size_t length) {
    std::string out;
    for (int i = 0; i < count; ++i) out += row(length, i % 97);
    return out;
  }

  RecordingSession session_;
};

TEST_F(DatasetTest, TheLengthLeftOpenIsThatOfAllButTheLongestRows) {
  JobSpec spec = on(rows(999, 40) + row(200));  // the p99.5 does not see one row in a thousand
  spec.hyperparameters.max_seq_length.reset();
  spec.hyperparameters.truncation = text::Truncation::kRight;
  const Dataset data = load(spec);
  EXPECT_EQ(data.max_seq_length, 40);
  EXPECT_EQ(data.train.size(), 1000u);
  EXPECT_THAT(
      warnings(),
      ElementsAre(
          "truncated: 1 row loses 160 tokens to max_seq_length 40, 160 of them trained ones"));
  EXPECT_THAT(summary(),
              StartsWith("1000 examples of at most 40 tokens to train on (40000 tokens), "));
}

TEST_F(DatasetTest, ChunksLoseNothingSoNothingIsWarnedOf) {
  JobSpec spec = on(rows(3, 10) + row(127));
  spec.hyperparameters.truncation = text::Truncation::kChunk;
  const Dataset data = load(spec);
  EXPECT_EQ(data.train.size(), 5u);  // 64 and 64 tokens that share one
  EXPECT_EQ(data.train[3].hash, data.train[4].hash);
  EXPECT_TRUE(warnings().empty());
  EXPECT_THAT(summary(), HasSubstr("Longer rows were split and nothing of them is lost: 4 rows "
                                   "gave 5 examples"));
  load(on(rows(3, 10)));
  EXPECT_THAT(summary(), ::testing::Not(HasSubstr("split")));
}

TEST_F(DatasetTest, RowsWithinTheBudgetAreLeftOutAndNamed) {
  JobSpec spec = on(rows(97, 10) + "not json\n" + row(10, 97) +
                    "{\"input_ids\": [5, 6], \"labels\": [5, -100]}\n");
  spec.skip_budget_ratio = 0.03;
  const Dataset data = load(spec);
  EXPECT_EQ(data.train.size(), 97u);
  ASSERT_EQ(warnings().size(), 3u);
  EXPECT_THAT(warnings()[0], StartsWith("invalid_json: 1 row is not used: line 98: "));
  EXPECT_THAT(warnings()[1], StartsWith("no_trainable_tokens: 1 row is not used: line 100: "));
  EXPECT_THAT(warnings()[2],
              StartsWith("token_id_out_of_range: 1 row is not used: line 99: input_ids"
                         "[0] is 97"));
  const auto event = session_.data("validation_complete").at(0);
  EXPECT_EQ(event.at("rows"), "100");
  EXPECT_EQ(event.at("dropped").at("invalid_json"), "1");
  // Faults of structure and of tokens count together.
  spec.skip_budget_ratio = 0.02;
  EXPECT_THAT(refusal(spec), HasSubstr("3 of 100 rows can't be trained (3.00 %, skip_budget_ratio "
                                       "allows 2.00 %)"));
  EXPECT_THAT(refusal(spec), HasSubstr("The first: line 98: invalid_json: "));
}

TEST_F(DatasetTest, AFileThatWasCutOffIsRefusedWhateverTheBudget) {
  JobSpec spec = on(rows(20, 10) + "{\"input_ids\": [1, 2");
  spec.skip_budget_ratio = 0.1;
  EXPECT_THAT(refusal(spec), StartsWith("rows.jsonl: line 21: truncated_last_line: "));
}

TEST_F(DatasetTest, AnotherFileThanTheJobsIsRefused) {
  JobSpec spec = on(rows(20, 10));
  spec.training_sha256 = std::string(64, '0');
  EXPECT_THAT(refusal(spec), HasSubstr("expected " + std::string(64, '0')));
  spec.training_sha256 = "";
  const Dataset data = load(spec);
  EXPECT_EQ(data.training_sha256.size(), 64u);
  EXPECT_EQ(data.validation_sha256.size(), 64u);
  EXPECT_TRUE(data.tokenizer_sha256.empty());
}

TEST_F(DatasetTest, HeldOutRowsThatAreTrainedOnAreTold) {
  JobSpec spec = on(rows(20, 10));
  std::ofstream(directory_ / "held.jsonl") << row(10, 3) << row(10, 4) << row(11, 50);
  spec.validation_path = directory_ / "held.jsonl";
  EXPECT_EQ(load(spec).validation.size(), 3u);
  EXPECT_THAT(warnings(), ElementsAre("valid_overlaps_train: 2 held-out rows are trained on too"));
  EXPECT_EQ(session_.data("warning").at(0).at("code"), "valid_overlaps_train");
  // The split of one file keeps equal rows on one side.
  JobSpec one = on(rows(97, 10) + rows(97, 10));
  one.validation_path.clear();
  EXPECT_GE(load(one).validation.size(), 10u);
  EXPECT_TRUE(warnings().empty());
}

TEST_F(DatasetTest, PresetsSayWhatTheyExpectOfTheRows) {
  JobSpec spec = on(rows(20, 10));
  EXPECT_TRUE((load(spec), warnings()).empty());
  spec.preset = "long_text@1";
  load(spec);
  EXPECT_THAT(warnings(), ElementsAre(StartsWith("preset_short_rows: half of the rows have at most "
                                                 "10 tokens")));
  spec.preset = "multilingual@1";
  load(spec);
  EXPECT_THAT(warnings(), ElementsAre(StartsWith("preset_language_share: no row carries")));
}

TEST_F(DatasetTest, RowsAreOfTheGroupThatTheJobDrawsBy) {
  JobSpec spec =
      on(row(10, 1, R"(, "language": "cy", "tag": "law")") + row(10, 2, R"(, "language": "en")") +
         row(10, 3) + R"({"input_ids": [5, 6], "labels": [5, -100], "language": "fr"})" + "\n");
  spec.skip_budget_ratio = 0.5;
  const auto groups = [this](const JobSpec& job) {
    std::vector<std::string> out;
    for (const Example& example : load(job).train) out.push_back(example.group);
    return out;
  };
  EXPECT_THAT(groups(spec), ElementsAre("", "", ""));
  EXPECT_TRUE(load(spec).groups.empty());
  spec.hyperparameters.group_by = GroupBy::kLanguage;
  EXPECT_THAT(groups(spec), ElementsAre("cy", "en", "(none)"));
  // What the file has, the row without a trained token included.
  EXPECT_THAT(load(spec).groups, ElementsAre("(none)", "cy", "en", "fr"));
  spec.hyperparameters.group_by = GroupBy::kTag;
  EXPECT_THAT(groups(spec), ElementsAre("law", "(none)", "(none)"));
}

}  // namespace
}  // namespace dex::train::testing
