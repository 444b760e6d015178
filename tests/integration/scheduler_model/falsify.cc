#include "tests/integration/scheduler_model/falsify.h"

#include <rapidcheck.h>

#include <chrono>
#include <optional>
#include <sstream>
#include <utility>

namespace dex::model {

namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr std::chrono::seconds kShrinkingTime{60};

// Weights: jobs come and end at the same pace, and every rule of the table has its turn.
rc::Gen<Kind> any_kind() {
  return rc::gen::weightedElement<Kind>(
      {{170, Kind::kSubmit}, {220, Kind::kClaim},   {110, Kind::kBeat},      {150, Kind::kFinish},
       {35, Kind::kCancel},  {35, Kind::kPause},    {35, Kind::kResume},     {70, Kind::kRedrive},
       {35, Kind::kUpdate},  {45, Kind::kPurge},    {30, Kind::kCheckpoint}, {20, Kind::kTenant},
       {60, Kind::kWorker},  {40, Kind::kFile},     {60, Kind::kTime},       {70, Kind::kSweep},
       {8, Kind::kZombie},   {4, Kind::kReconnect}, {2, Kind::kRestart},     {30, Kind::kArchive},
       {40, Kind::kAdapter}, {8, Kind::kDamage}});
}

// Of a list that fails only commands are left out: what a command draws depends on those before it,
// so smaller numbers are not simpler.
rc::Gen<std::vector<Command>> any_commands(int most) {
  const auto numbers = rc::gen::pair(any_kind(), rc::gen::arbitrary<uint64_t>());
  const auto command = rc::gen::map(numbers, [](const std::pair<Kind, uint64_t>& drawn) {
    return Command{drawn.first, drawn.second};
  });
  return rc::gen::resize(most, rc::gen::container<std::vector<Command>>(
                                   rc::gen::resize(rc::kNominalSize, rc::gen::noShrink(command))));
}

}  // namespace

std::string falsify(uint64_t seed, int most, bool shrink, const Property& property) {
  std::optional<SteadyClock::time_point> failed;
  std::string last;  // rapidcheck asks again for what it tells, also when the time is over
  const auto commands = any_commands(most);
  const auto one_case = [&]() -> std::string {
    const std::vector<Command> drawn = *commands;
    if (failed && SteadyClock::now() - *failed > kShrinkingTime) return "";
    std::string wrong = property(drawn);
    if (!wrong.empty()) {
      if (!failed) failed = SteadyClock::now();
      last = std::to_string(drawn.size()) + " commands: " + wrong;
    }
    return wrong;
  };
  rc::detail::TestParams params;
  params.seed = seed;
  params.maxSuccess = 1;
  params.disableShrinking = !shrink;
  rc::detail::TestMetadata metadata;
  metadata.id = metadata.description = "model";
  const rc::detail::TestResult result = rc::detail::checkTestable(one_case, metadata, params);
  if (result.is<rc::detail::SuccessResult>()) return "";
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  return "seed " + std::to_string(seed) + ": " + text.str() + "\n" + last;
}

}  // namespace dex::model
