// The clock that counts, Redis' own, jumps ten minutes: no job loses its lease by it, and a worker
// that dies afterwards is noticed as soon as ever.
#include <gmock/gmock.h>

#include <fstream>
#include <memory>
#include <string>

#include "services/base/clock.h"
#include "tests/support/chaos_platform.h"
#include "tests/support/eventually.h"
#include "tests/support/figures.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex {
namespace {

using support::ChaosPlatform;
using support::eventually;
using support::Program;
using testing::IsEmpty;

constexpr int64_t kTenMinutes_ms = 600'000;

// A platform whose Redis lives by a clock of its own (tests/support/shifted_clock.cc).
class ClockJumpTest : public testing::Test {
 protected:
  ClockJumpTest() {
    jump_to(0);
    ChaosPlatform::Options options{.agents = 2};
    options.redis_launcher = {
        "env", "LD_PRELOAD=" + (support::build_dir() / "tests/libdex_shifted_clock.so").string(),
        "DEX_CLOCK_SHIFT_FILE=" + file()};
    platform_ = std::make_unique<ChaosPlatform>(options);
  }

  void jump_to(int64_t shift_ms) const {
    std::ofstream out(file(), std::ios::binary | std::ios::in | std::ios::out);
    if (!out) out.open(file(), std::ios::binary);
    out.write(reinterpret_cast<const char*>(&shift_ms), sizeof shift_ms);
  }
  // How far Redis' clock is from this machine's, in ms.
  int64_t shift_seen() {
    const auto time = platform_->redis().call({"TIME"});
    return time.num(0) * 1000 + time.num(1) / 1000 - clock_.now_ms();
  }
  // Jumps, and waits until every lease has been renewed under the new time.
  void jump_during(const std::string& id, int64_t shift_ms) {
    jump_to(shift_ms);
    ASSERT_NEAR(shift_seen(), shift_ms, 60'000) << "the clock of Redis did not jump";
    ASSERT_TRUE(eventually([&] {
      const int64_t left_ms = platform_->number(id, "lease_ms") - clock_.now_ms() - shift_ms;
      return left_ms > 0 && left_ms <= ChaosPlatform::Options().times.lease_ms;
    }));
    EXPECT_EQ(platform_->number(id, "attempt"), 1) << "the jump cost the job its lease";
    EXPECT_EQ(platform_->state(id), "RUNNING");
  }

  support::TemporaryDirectory directory_;
  base::SystemClock clock_;
  std::unique_ptr<ChaosPlatform> platform_;

 private:
  [[nodiscard]] std::string file() const { return directory_ / "shift"; }
};

TEST_F(ClockJumpTest, JumpsForwardAndBackCostNobodyALeaseAndHideNoDeadWorker) {
  const std::string id = platform_->submit("ms-20.gate-60", 80);
  ASSERT_TRUE(platform_->reaches(id, 5));
  jump_during(id, kTenMinutes_ms);
  jump_during(id, -kTenMinutes_ms);  // twenty minutes back

  // What lies in the past's future must not keep a dead worker alive.
  ASSERT_TRUE(platform_->settled());
  const int64_t killed_ms = clock_.steady_ms();
  Program& lost = platform_->agent(ChaosPlatform::agent_of(platform_->record(id)["worker"]));
  lost.kill();
  ASSERT_TRUE(eventually([&] { return platform_->number(id, "attempt") == 2; }));
  const double took_s = clock_.seconds_since(killed_ms);
  support::figure("P3", "recovery_after_clock_jump_s", took_s);
  EXPECT_LT(took_s, support::slack() * 4.0);
  platform_->open_gate(id);
  EXPECT_TRUE(platform_->becomes(id, "SUCCEEDED"));
  // Epochs grow all the same, which is for the oracle to say.
  EXPECT_THAT(platform_->wrong(), IsEmpty());
}

}  // namespace
}  // namespace dex
