// Random calls on a real Redis against a second writing of jobs.md (reference.cc) and its
// invariants (tests/support/invariants.h). A failure prints its seed and the shortest commands that
// fail: DEX_MODEL_SEED=<seed> repeats it. DEX_MODEL_STEPS asks for more steps than 20,000.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/integration/scheduler_model/falsify.h"
#include "tests/integration/scheduler_model/model_run.h"
#include "tests/support/figures.h"

namespace dex::model {
namespace {

constexpr int kMostCommands = 1000;  // a case; half of that on average
constexpr int kOften = 20;

int64_t from_environment(const char* name, int64_t other) {
  const char* value = std::getenv(name);
  return value == nullptr || *value == '\0' ? other : std::atoll(value);
}

// Every answer that jobs.md §3 names, in the words of Expected::word.
const std::vector<std::pair<std::string, std::vector<std::string>>> kAnswers = {
    {"submit", {"OK", "DUP", "CONFLICT", "IDTAKEN", "NOTUNIQUE", "NOFILE", "NOADAPTER", "QUOTA"}},
    {"claim", {"JOB", "JOB again", "STALE", "NONE", "DRAIN", "UNKNOWN"}},
    {"beat", {"OK", "CANCEL", "PAUSE", "LOST", "BADARG"}},
    {"finish",
     {"OK success", "OK fail_retry", "OK fail_final", "OK crash", "OK oom", "OK disk_full",
      "OK release", "OK paused", "OK cancelled", "DUP", "LOST", "BADSTATE", "BADARG"}},
    {"cancel", {"OK", "DUP", "CONFLICT", "TERMINAL", "NOTFOUND"}},
    {"pause", {"OK", "DUP", "CONFLICT", "TERMINAL", "BADSTATE", "NOTFOUND"}},
    {"resume", {"OK", "DUP", "CONFLICT", "TERMINAL", "BADSTATE", "NOTFOUND"}},
    {"redrive", {"OK", "DUP", "BADSTATE", "PURGING", "NOFILE", "NOTUNIQUE", "QUOTA", "NOTFOUND"}},
    {"update", {"OK", "DUP", "CONFLICT", "STALE", "TERMINAL", "NOTFOUND"}},
    {"purge",
     {"OK", "OK commit", "DUP", "CONFLICT", "BADSTATE", "YOUNG", "NOTMARKED", "GONE", "NOTFOUND"}},
    {"checkpoint", {"OK", "DUP", "CONFLICT", "TERMINAL", "BADSTATE", "NOTFOUND"}},
    {"file", {"OK", "OK delete", "DUP", "CONFLICT", "QUOTA", "INUSE", "NOTFOUND"}},
    {"adapter", {"OK", "OK delete", "DUP", "CONFLICT", "INUSE", "NOTFOUND"}},
    {"archived", {"OK", "GONE"}},
    {"worker", {"OK", "UNKNOWN"}},
    {"reconcile", {"mended"}}};

// How often a sweep had this to do.
int sweeps_with(const Tally& tally, const std::string& what) {
  int n = 0;
  for (const auto& [word, count] : tally) {
    const bool fits = word.starts_with("sweep") && word.find(what) != std::string::npos;
    n += fits ? count : 0;
  }
  return n;
}

// Answers that have come up too seldom, and how often.
std::map<std::string, int> rare(const Tally& tally) {
  std::map<std::string, int> words;
  const auto expect = [&](const std::string& word, int n, int least) {
    if (n < least) words[word] = n;
  };
  const auto count = [&](const std::string& word) {
    const auto found = tally.find(word);
    return found == tally.end() ? 0 : found->second;
  };
  for (const auto& [script, answers] : kAnswers) {
    for (const std::string& answer : answers) {
      const std::string word = script + " " + answer;
      expect(word, count(word), kOften);
    }
  }
  for (const std::string what : {"settling", "pulled", "deadline", "lease", "due", "lost"}) {
    expect("sweep: " + what, sweeps_with(tally, what), kOften);
  }
  // A tenant whose day is spent, and a day later.
  expect("sweep: uncapped", sweeps_with(tally, "uncapped"), 5);
  expect("restarts", count("hello NEW"), kOften);
  return words;
}

TEST(SchedulerModelTest, RandomCallsDoWhatTheDesignSaysAndNothingElse) {
  model::Run run;
  const auto property = [&](const std::vector<Command>& commands) {
    return run_commands(commands, {}, run);
  };
  const int64_t only = from_environment("DEX_MODEL_SEED", 0);
  if (only != 0) {
    const std::string wrong = falsify(static_cast<uint64_t>(only), kMostCommands, true, property);
    ASSERT_EQ(wrong, "");
    return;
  }
  const int64_t goal = from_environment("DEX_MODEL_STEPS", support::long_form() ? 200'000 : 20'000);
  // A little longer if chance has left out an answer.
  for (uint64_t seed = 1;
       run.steps < goal || (!rare(run.tally).empty() && run.steps < goal + goal / 2); ++seed) {
    const std::string wrong = falsify(seed, kMostCommands, true, property);
    ASSERT_EQ(wrong, "") << "DEX_MODEL_SEED=" << seed;
  }
  for (const auto& [word, n] : rare(run.tally)) {
    ADD_FAILURE() << word << " came up " << n << " times only";
  }
  support::figure("P11", "model_steps", static_cast<double>(run.steps));
}

// rapidcheck finds what is wrong and leaves out what does not matter: here all but two commands.
TEST(SchedulerModelTest, AFailureIsShrunkToTheCommandsThatMatter) {
  size_t shortest = 1000;
  std::string told;
  uint64_t seed = 0;
  while (told.empty() && seed < 100) {  // some seeds make too few commands
    told = falsify(++seed, 200, true, [&](const std::vector<Command>& commands) {
      int submits = 0;
      for (const Command& command : commands) submits += command.kind == Kind::kSubmit ? 1 : 0;
      if (submits < 2) return std::string();
      shortest = std::min(shortest, commands.size());
      return std::string("two were submitted");
    });
  }
  EXPECT_NE(told.find("two were submitted"), std::string::npos) << told;
  EXPECT_NE(told.find("seed " + std::to_string(seed)), std::string::npos) << told;
  EXPECT_EQ(shortest, 2U);
}

}  // namespace
}  // namespace dex::model
