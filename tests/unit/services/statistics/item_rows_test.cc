// The numbers of an evaluation, item by item, as a file and back.
#include "services/statistics/item_rows.h"

#include <gmock/gmock.h>

#include <bit>
#include <cmath>
#include <limits>

namespace dex::statistics {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr size_t kRoom = 1 << 20;

ItemRow loss(const std::string& subject, const std::vector<int64_t>& items, double first = 0.1) {
  ItemRow row{.metric = "loss",
              .subject = subject,
              .rule = {.shares = false, .lower_is_better = true},
              .items = items};
  for (size_t i = 0; i < items.size(); ++i)
    row.numbers.push_back({first / static_cast<double>(i + 3), static_cast<double>(i + 1)});
  return row;
}

TEST(ItemRowsTest, EveryBitComesBack) {
  TaskItems items{.task = "perplexity", .files = {"aa", "bb"}};
  items.rows = {loss("base", {0, 1, 7}), loss("night", {0, 1, 7}, 1e-300)};
  items.rows[1].dims = {{"tag", "a \"b\"\n"}, {"language", "cy"}};
  items.rows[1].rule = {.shares = true, .exponential = true, .judged = false};
  const auto back = parse_items(items_text(items, kRoom));
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_EQ(back->task, "perplexity");
  EXPECT_THAT(back->files, ElementsAre("aa", "bb"));
  EXPECT_EQ(back->left_out, 0);
  ASSERT_EQ(back->rows.size(), 2U);
  for (size_t r = 0; r < 2; ++r) {
    const ItemRow &one = items.rows[r], &other = back->rows[r];
    EXPECT_EQ(one.metric, other.metric);
    EXPECT_EQ(one.subject, other.subject);
    EXPECT_EQ(one.dims, other.dims);
    EXPECT_EQ(one.rule, other.rule);
    EXPECT_EQ(one.items, other.items);
    ASSERT_EQ(other.numbers.size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(std::bit_cast<uint64_t>(one.numbers[i].value),
                std::bit_cast<uint64_t>(other.numbers[i].value));
      EXPECT_EQ(one.numbers[i].weight, other.numbers[i].weight);
    }
  }
}

TEST(ItemRowsTest, WeightsOfOneAreNotWrittenAndWhatIsNotFiniteIsNoNumber) {
  TaskItems items{.task = "icl"};
  items.rows = {loss("base", {4})};
  items.rows[0].numbers = {{std::numeric_limits<double>::infinity(), 1}};
  const std::string text = items_text(items, kRoom);
  EXPECT_EQ(text.find("weights"), std::string::npos);
  const auto back = parse_items(text);
  ASSERT_TRUE(back.ok()) << back.status().to_string();
  EXPECT_TRUE(std::isnan(back->rows[0].numbers[0].value));
  EXPECT_EQ(back->rows[0].numbers[0].weight, 1);
}

TEST(ItemRowsTest, RowsOverMostSamplesGoFirstIntoWhatRoomThereIs) {
  TaskItems items{.task = "perplexity"};
  items.rows = {loss("base", {0, 1}), loss("base", {0}), loss("base", {0, 1, 2})};
  items.rows[0].dims = {{"tag", "a"}, {"language", "cy"}};
  items.rows[1].dims = {{"tag", "a"}};
  const size_t all = items_text(items, kRoom).size();
  const auto less = parse_items(items_text(items, all - 150));
  ASSERT_TRUE(less.ok()) << less.status().to_string();
  EXPECT_GT(less->left_out, 0);
  EXPECT_EQ(less->left_out + static_cast<int64_t>(less->rows.size()), 3);
  ASSERT_FALSE(less->rows.empty());
  EXPECT_TRUE(less->rows[0].dims.empty()) << "the row over everything";
  EXPECT_EQ(parse_items(items_text(items, 1))->left_out, 3);
}

TEST(ItemRowsTest, ALineOfAnotherShapeIsNoFileOfItems) {
  const std::string good = items_text({.task = "icl", .rows = {loss("base", {0, 1})}}, kRoom);
  ASSERT_TRUE(parse_items(good).ok());
  const auto broken = [&good](const std::string& what, const std::string& by) {
    std::string text = good;
    const size_t at = text.find(what);
    EXPECT_NE(at, std::string::npos) << what;
    return parse_items(text.replace(at, what.size(), by)).status();
  };
  for (const auto& status :
       {broken("[0,1]", "[1,0]"), broken("[0,1]", "[0,0]"), broken("[0,1]", "[0]"),
        broken("\"values\"", "\"value\""), broken("{\"dims\"", "[\"dims\""),
        broken("\"icl\"", "\"\""), broken("\"base\"", "7"), parse_items("").status(),
        parse_items("{}\n").status()}) {
    EXPECT_EQ(status.reason(), "ARTIFACT_CORRUPT") << status.to_string();
    EXPECT_THAT(status.message(), HasSubstr("the numbers by item"));
  }
}

TEST(PairsTest, AreTheItemsThatBothHave) {
  const ItemRow base = loss("base", {0, 2, 3, 9}), subject = loss("night", {1, 2, 9, 11}, 5);
  const Pairs pairs = pairs_of(base, subject);
  EXPECT_FALSE(pairs.complete);
  ASSERT_EQ(pairs.base.size(), 2U);
  ASSERT_EQ(pairs.subject.size(), 2U);
  EXPECT_EQ(pairs.base[0].value, base.numbers[1].value);
  EXPECT_EQ(pairs.subject[0].value, subject.numbers[1].value);
  EXPECT_EQ(pairs.base[1].value, base.numbers[3].value);
  EXPECT_EQ(pairs.subject[1].value, subject.numbers[2].value);
  EXPECT_TRUE(pairs_of(base, base).complete);
  EXPECT_FALSE(pairs_of(base, loss("night", {0, 2, 3})).complete);
  EXPECT_FALSE(pairs_of(loss("base", {0, 2, 3}), base).complete);
}

TEST(PairsTest, ARowIsFoundByItsWholeName) {
  TaskItems items{.task = "perplexity", .rows = {loss("base", {0}), loss("night", {0})}};
  items.rows[1].dims = {{"tag", "a"}};
  EXPECT_EQ(find_row(items, "loss", {}, "base"), &items.rows[0]);
  EXPECT_EQ(find_row(items, "loss", {{"tag", "a"}}, "night"), &items.rows[1]);
  EXPECT_EQ(find_row(items, "loss", {}, "night"), nullptr);
  EXPECT_EQ(find_row(items, "perplexity", {}, "base"), nullptr);
}

}  // namespace
}  // namespace dex::statistics
