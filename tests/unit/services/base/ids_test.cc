#include "services/base/ids.h"

#include <gtest/gtest.h>

#include <set>

#include "tests/support/manual_clock.h"

namespace dex::base {
namespace {

TEST(UlidGeneratorTest, HasTheFormOfApiMdAndHoldsItsTime) {
  support::ManualClock clock(1'764'000'000'123);
  SeededRandom random(1);
  UlidGenerator generator(clock, random);
  const auto id = generator.next();
  EXPECT_EQ(id.size(), 26u);
  EXPECT_TRUE(is_ulid(id)) << id;
  EXPECT_EQ(ulid_time_ms(id), 1'764'000'000'123);
}

TEST(UlidGeneratorTest, GrowsWithinAMillisecondAndWhenTheClockStepsBack) {
  support::ManualClock clock;
  SeededRandom random(2);
  UlidGenerator generator(clock, random);
  std::string last = generator.next();
  for (int i = 0; i < 3000; ++i) {
    if (i == 1000) clock.set_now_ms(clock.now_ms() - 5000);
    if (i == 2000) clock.advance_ms(60'000);
    const auto next = generator.next();
    ASSERT_LT(last, next) << "at call " << i;
    last = next;
  }
}

TEST(UlidGeneratorTest, TwoGeneratorsDiffer) {
  support::ManualClock clock;
  SystemRandom random;
  UlidGenerator one(clock, random);
  UlidGenerator two(clock, random);
  EXPECT_NE(one.next(), two.next());
}

TEST(IdsTest, IsIdAcceptsOnlyPrefixAndUlid) {
  support::ManualClock clock;
  SeededRandom random(3);
  UlidGenerator generator(clock, random);
  const auto id = generator.make("ftjob-");
  EXPECT_TRUE(is_id(id, "ftjob-"));
  EXPECT_FALSE(is_id(id, "file-"));
  EXPECT_FALSE(is_id(id + "x", "ftjob-"));
  EXPECT_FALSE(is_id("ftjob-../../../etc/passwd0000", "ftjob-"));
  EXPECT_FALSE(is_id("ftjob-01JD0000000000000000000000", "ftjob-")) << "upper case";
  EXPECT_FALSE(is_id("ftjob-81jd0000000000000000000000", "ftjob-")) << "more than 128 bits";
  EXPECT_FALSE(is_id("", ""));
}

TEST(IdsTest, AModelsNameIsSafeInIdsAndLabels) {
  for (const std::string& name :
       {std::string("a"), std::string("qwen2.5-0.5b"), std::string("7b"), std::string(64, 'a')})
    EXPECT_TRUE(is_model_name(name)) << name;
  for (const std::string& name :
       {std::string(), std::string("-a"), std::string(".a"), std::string("A"), std::string("a:b"),
        std::string("a/b"), std::string("a b"), std::string(65, 'a')})
    EXPECT_FALSE(is_model_name(name)) << name;
}

}  // namespace
}  // namespace dex::base
