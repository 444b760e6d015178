// What is decided by the number of updates where only the trainer knows it.
#include <gmock/gmock.h>

#include "tests/unit/scheduler/core/resolve_input.h"

namespace dex::core {
namespace {

using testing::Contains;
using testing::HasSubstr;

// method.md §3.3: T is clamped to N. A guess of N (bytes / 4) may be half of it, so it clamps
// nothing; 950,000 tokens in packs of 1,024 and batches of 4 are 232 updates.
TEST(ResolveUpdatesTest, AGuessOfTheUpdatesClampsNoAnnealing) {
  auto in = input();
  in.spec.mutable_hyperparameters()->clear_max_steps();
  const auto result = resolved(in);
  ASSERT_EQ(result.workload.updates, 232);
  EXPECT_EQ(result.config.spec().dex().lambda().anneal_steps(), 3000);
  EXPECT_EQ(result.config.sources().at("dex.lambda.anneal_steps"), "PRESET (brief)");
  EXPECT_THAT(result.warnings,
              Contains("annealing_clamped: anneal_steps 3000 > about 232 updates: the job will use "
                       "as many as it has, counted at its start"));
  in.spec.mutable_dex()->mutable_lambda()->set_anneal_steps(200);
  EXPECT_THAT(resolved(in).warnings, testing::Not(Contains(HasSubstr("annealing_clamped"))));
}

// method.md §2.5: one short row looks like one update, in which λ(0) = 0 moves nothing; whether it
// is one only the trainer knows. What is dead however many there are is refused at once.
TEST(ResolveUpdatesTest, DeadPointsAreNotJudgedByAGuessOfTheUpdates) {
  auto in = input("paper");
  in.spec.mutable_hyperparameters()->clear_max_steps();
  in.training = {v1::FILE_FORMAT_TEXT, 1, 100, 100};
  ASSERT_EQ(resolved(in).workload.updates, 1);
  in.spec.mutable_hyperparameters()->set_max_steps(1);
  EXPECT_EQ(refused(in).reason(), "DEAD_CONFIGURATION");
  in.spec.mutable_hyperparameters()->clear_max_steps();

  auto short_bump = in;  // T = 1 is never visited
  short_bump.spec.mutable_dex()->mutable_lambda()->set_anneal_steps(1);
  EXPECT_EQ(refused(short_bump).reason(), "DEAD_CONFIGURATION");
  EXPECT_THAT(refused(short_bump).message(),
              HasSubstr("branch can't start: give anneal_steps ≥ 2"));
  EXPECT_THAT(refused(short_bump).message(), testing::Not(HasSubstr("of 1000000 updates")));
  auto flat = in;
  flat.spec.mutable_dex()->mutable_lambda()->set_init(0);
  EXPECT_EQ(refused(flat).reason(), "DEAD_CONFIGURATION");
  auto zero = in;
  zero.spec.mutable_dex()->set_preset("small");
  zero.spec.mutable_dex()->mutable_lambda()->set_start(0);
  zero.spec.mutable_dex()->mutable_lambda()->set_end(0);
  EXPECT_THAT(refused(zero).message(),
              HasSubstr("lambda is 0 for the whole job: give start or end"));
}

}  // namespace
}  // namespace dex::core
