// What lies between two evaluations, from the numbers by item that a worker has published. Figures
// are worked out by hand.
#include <gmock/gmock.h>

#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "services/statistics/item_rows.h"
#include "tests/integration/scheduler/evaluation_fixture.h"

namespace dex::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class EvaluationCompareTest : public EvaluationTest {
 protected:
  using Row = statistics::ItemRow;
  using Change = std::function<void(v1::EvaluationSpec&)>;

  EvaluationCompareTest() { enlist(); }

  // A loss of so many nats for each of these items.
  static Row loss(const std::string& subject, double nats,
                  const std::vector<int64_t>& items = {0, 1, 2, 3, 4, 5, 6, 7}) {
    Row row{.metric = "loss",
            .subject = subject,
            .rule = {.shares = false, .lower_is_better = true},
            .items = items};
    for (size_t i = 0; i < items.size(); ++i) row.numbers.push_back({nats * 4, 4});
    return row;
  }
  static std::string items(const std::vector<Row>& rows, const std::string& sha256 = "aa",
                           const std::string& task = "perplexity") {
    return statistics::items_text({.task = task, .files = {sha256}, .rows = rows}, 1 << 20);
  }
  // An evaluation of a file of its own, that has published these numbers for its first task.
  std::string measured(const std::string& published, const Change& change = {}) {
    return measured(std::map<std::string, std::string>{{"items-1.jsonl", published}}, change);
  }
  std::string measured(const std::map<std::string, std::string>& files, const Change& change = {}) {
    auto request = perplexity_of(upload_evals("some text\n", "wiki.raw").id());
    if (change) change(*request.mutable_spec());
    const auto made = create_evaluation(request);
    EXPECT_TRUE(made.ok()) << made.status().to_string();
    const auto claimed = claim();
    EXPECT_TRUE(claimed.has_job());
    job_ = claimed.job();
    EXPECT_EQ(publish(job_, "w1", files), "SUCCEEDED");
    return made->id();
  }
  base::Result<v1::CompareEvaluationsResponse> compare(const std::string& a, const std::string& b,
                                                       const std::string& subject_a = "",
                                                       const std::string& subject_b = "") {
    v1::CompareEvaluationsRequest request;
    request.set_a(a);
    request.set_b(b);
    request.set_subject_a(subject_a);
    request.set_subject_b(subject_b);
    return call(*evaluations_, &EvaluationStub::CompareEvaluations, request);
  }
  void differ(const std::string& a, const std::string& b, const std::string& words) {
    const auto status = compare(a, b).status();
    EXPECT_EQ(status.reason(), "CONFLICTING_FIELDS") << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr(words));
    ASSERT_EQ(status.violations().size(), 1U);
    EXPECT_EQ(status.violations()[0].field, "b");
  }
  static Change second_subject(const std::string& adapter, const std::string& label) {
    return [=](v1::EvaluationSpec& spec) {
      auto& subject = *spec.add_subjects();
      subject.set_adapter(adapter);
      subject.set_label(label);
    };
  }

  iv1::ClaimedJob job_;  // of the last measured()
};

TEST_F(EvaluationCompareTest, SubjectsAreComparedPlaceByPlaceAndItemByItem) {
  const std::string adapter = train_adapter();
  const auto a =
      measured(items({loss("base", 3), loss("old", 2.5)}), second_subject(adapter, "old"));
  const auto b =
      measured(items({loss("base", 3), loss("new", 2.25)}), second_subject(adapter, "new"));
  const auto found = compare(a, b);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->a(), a);
  EXPECT_EQ(found->b(), b);
  EXPECT_THAT(found->notes(), IsEmpty());
  ASSERT_EQ(found->differences_size(), 2);
  const auto& same = found->differences(0);
  EXPECT_EQ(same.subject_a(), "base");
  EXPECT_EQ(same.subject_b(), "base");
  EXPECT_EQ(same.delta(), 0);
  EXPECT_EQ(same.verdict(), v1::EvaluationRow::VERDICT_NO_DIFFERENCE);
  const auto& moved = found->differences(1);
  EXPECT_EQ(moved.task(), "perplexity");
  EXPECT_EQ(moved.metric(), "loss");
  EXPECT_EQ(moved.subject_a(), "old");
  EXPECT_EQ(moved.subject_b(), "new");
  EXPECT_EQ(moved.value_a(), 2.5);
  EXPECT_EQ(moved.value_b(), 2.25);
  EXPECT_EQ(moved.delta(), -0.25);
  EXPECT_EQ(moved.delta_low(), -0.25) << "each resample is paired";
  EXPECT_EQ(moved.delta_high(), -0.25);
  EXPECT_EQ(moved.verdict(), v1::EvaluationRow::VERDICT_BETTER);
  EXPECT_EQ(moved.n(), 8);
  EXPECT_EQ(moved.confidence(), 0.95);

  EXPECT_EQ(compare(b, a)->differences(1).verdict(), v1::EvaluationRow::VERDICT_WORSE);
  const auto named = compare(a, b, "base", "new");
  ASSERT_EQ(named->differences_size(), 1);
  EXPECT_EQ(named->differences(0).delta(), -0.75);
  const auto itself = compare(a, a, "old", "base");
  ASSERT_TRUE(itself.ok()) << itself.status().to_string();
  EXPECT_EQ(itself->differences(0).delta(), 0.5);
}

TEST_F(EvaluationCompareTest, GroupsTooFewForAVerdictAndWhatIsAloneAreSaid) {
  auto tagged = [](double nats, const std::string& tag) {
    Row row = loss("base", nats, {0, 1, 2});
    row.dims = {{"tag", tag}};
    return row;
  };
  const auto a = measured(items({loss("base", 3), tagged(3, "news"), tagged(3, "law")}));
  const auto b = measured(items({loss("base", 3), tagged(2, "news")}));
  const auto found = compare(a, b);
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->differences_size(), 2);
  EXPECT_EQ(found->differences(1).dims().at("tag"), "news");
  EXPECT_EQ(found->differences(1).delta(), -1);
  EXPECT_EQ(found->differences(1).verdict(), v1::EvaluationRow::VERDICT_NO_DIFFERENCE);
  EXPECT_THAT(found->notes(), ElementsAre("perplexity: 1 rows of a have no counterpart in b",
                                          HasSubstr("n = 3 is too few for a verdict at 95 %")));
}

TEST_F(EvaluationCompareTest, OtherItemsAreRefusedWithTheReason) {
  const auto a = measured(items({loss("base", 3)}));
  differ(a, measured(items({loss("base", 2)}, "bb")), "their files have other bytes");
  differ(a, measured(items({loss("base", 2, {0, 1, 2, 3, 4, 5, 6, 9})})),
         "perplexity loss is over other items: 8 in a and 8 in b, of which 7 are the same");
  differ(a,
         measured(items({loss("base", 2)}),
                  [](auto& spec) { spec.mutable_tasks(0)->mutable_perplexity()->set_stride(9); }),
         "perplexity.stride is unset and 9");
  differ(a, measured(items({loss("base", 2)}), [](auto& spec) { spec.set_seed(4); }),
         "drawn with seed 0 and 4");
  differ(a,
         measured(items({loss("base", 2)}, "aa", "answers"),
                  [](auto& spec) {
                    const std::string file = spec.tasks(0).perplexity().file();
                    spec.mutable_tasks(0)->mutable_answers()->set_file(file);
                  }),
         "tasks[0] perplexity is in a alone");
  differ(a, measured(std::map<std::string, std::string>()), "a worker of before kept none");
  differ(measured(std::map<std::string, std::string>()), a, "a worker of before kept none");
}

TEST_F(EvaluationCompareTest, TasksThatOnlyOneHasAreLeftOutAndNamed) {
  const auto two = [](v1::EvaluationSpec& spec) {
    const std::string file = spec.tasks(0).perplexity().file();
    spec.add_tasks()->mutable_answers()->set_file(file);
    spec.mutable_tasks()->SwapElements(0, 1);
  };
  const std::map<std::string, std::string> published = {
      {"items-1.jsonl", items({loss("base", 1)}, "aa", "answers")},
      {"items-2.jsonl", items({loss("base", 3)})}};
  const auto a = measured(published, two);
  const auto found = compare(a, measured(items({loss("base", 2)})));
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  ASSERT_EQ(found->differences_size(), 1);
  EXPECT_EQ(found->differences(0).task_a(), 1U);
  EXPECT_EQ(found->differences(0).task_b(), 0U);
  EXPECT_EQ(found->differences(0).delta(), -1);
  EXPECT_THAT(found->notes(), ElementsAre("not compared: tasks[0] answers is in a alone"));
}

TEST_F(EvaluationCompareTest, LabelsAndStatesAreChecked) {
  const std::string adapter = train_adapter();
  const auto one = measured(items({loss("base", 3)}));
  const auto two =
      measured(items({loss("base", 3), loss("new", 2)}), second_subject(adapter, "new"));
  EXPECT_EQ(compare(one, two).status().reason(), "INVALID_FIELD");
  EXPECT_THAT(compare(one, two).status().message(), HasSubstr("one has 1 subjects"));
  EXPECT_EQ(compare(one, two, "base").status().violations().at(0).field, "subject_b");
  const auto unknown = compare(one, two, "base", "night").status();
  EXPECT_EQ(unknown.violations().at(0).field, "subject_b");
  EXPECT_THAT(unknown.message(), HasSubstr("must be one of base, new, got 'night'"));
  EXPECT_TRUE(compare(one, two, "base", "new").ok());

  const std::string queued = created().id();
  EXPECT_EQ(compare(one, queued).status().reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(compare(queued, one).status().reason(), "JOB_STATE_CONFLICT");
  EXPECT_EQ(compare(one, "").status().reason(), "MISSING_FIELD");
  EXPECT_EQ(compare(create_good().id(), one).status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(EvaluationCompareTest, NumbersThatChangedOnTheDiskAreNotCompared) {
  const auto a = measured(items({loss("base", 3)}));
  std::ofstream(directory_ / "data" / job_.attempt_dir() / "final/items-1.jsonl") << "{}\n";
  EXPECT_EQ(compare(a, a).status().reason(), "ARTIFACT_CORRUPT");
}

}  // namespace
}  // namespace dex::server
