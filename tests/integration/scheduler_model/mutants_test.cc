// Whether the model test would notice: each mutant of mutants.cc must be caught. deploy/check runs
// every twentieth, DEX_LONG all of them, DEX_MUTANT=<name> (or tests/mutants) one.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

#include "services/base/subprocess.h"
#include "tests/integration/scheduler_model/falsify.h"
#include "tests/integration/scheduler_model/model_run.h"
#include "tests/integration/scheduler_model/mutants.h"
#include "tests/support/eventually.h"
#include "tests/support/long_form.h"
#include "tests/support/paths.h"
#include "tests/support/temporary_directory.h"

namespace dex::model {
namespace {

constexpr int kCommandsOfACase = 800;
constexpr uint64_t kSeeds = 12;
constexpr size_t kStride = 20;  // each takes seconds until it is caught

std::vector<Mutant> chosen() {
  const char* wanted = std::getenv("DEX_MUTANT");
  const bool one = wanted != nullptr && *wanted != '\0';
  std::vector<Mutant> rows;
  for (size_t i = 0; i < mutants().size(); ++i) {
    const Mutant& mutant = mutants()[i];
    const bool fits = one ? mutant.name == wanted : support::long_form() || i % kStride == 0;
    if (fits) rows.push_back(mutant);
  }
  return rows;
}

class MutantTest : public testing::TestWithParam<Mutant> {};

TEST_P(MutantTest, IsCaught) {
  static support::RedisServer server;
  const std::vector<store::Script> scripts = scripts_with(GetParam());
  World::Options options;
  options.scripts = &scripts;
  model::Run run;
  std::string told;
  for (uint64_t seed = 1; seed <= kSeeds && told.empty(); ++seed) {
    told = falsify(seed, kCommandsOfACase, false, [&](const std::vector<Command>& commands) {
      return run_commands_on(server, commands, options, run);
    });
  }
  EXPECT_NE(told, "") << GetParam().name << " does as the design says for " << run.steps
                      << " steps";
  // A script that breaks is caught by any test; a mutant must work and be wrong.
  EXPECT_EQ(told.find("The store failed"), std::string::npos) << told;
}

INSTANTIATE_TEST_SUITE_P(Scripts, MutantTest, testing::ValuesIn(chosen()),
                         [](const testing::TestParamInfo<Mutant>& row) { return row.param.name; });
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(MutantTest);

TEST(MutantsTest, EveryTextStandsOnceInItsScript) {
  for (const Mutant& mutant : mutants()) {
    const std::vector<store::Script> scripts = scripts_with(mutant);
    EXPECT_EQ(scripts.size(), store::all_scripts().size());
    size_t changed = 0;
    for (size_t i = 0; i < scripts.size(); ++i) {
      changed += scripts[i].sha1 != store::all_scripts()[i].sha1 ? 1 : 0;
    }
    EXPECT_EQ(changed, mutant.script == "lib" ? scripts.size() : 1U) << mutant.name;
  }
}

TEST(MutantsTest, ATextThatIsNotThereIsRefused) {
  EXPECT_THROW(scripts_with({"gone", "claim", {{"no such line", ""}}}), std::runtime_error);
  EXPECT_THROW(scripts_with({"often", "claim", {{"call(", ""}}}), std::runtime_error);
  EXPECT_THROW(scripts_with({"nowhere", "no_such_script", {{"call(", ""}}}), std::runtime_error);
}

// The one mutant of jobs.md §14 that no call can catch: milliseconds have fewer digits than Lua's
// own conversion of numbers keeps.
TEST(MutantsTest, NumbersByTostringAreCaughtByTheLint) {
  const auto lint_says = [](const std::filesystem::path& folder) {
    base::Subprocess::Options options;
    options.program = "python3";
    options.args = {(support::source_dir() / "tests/lint/lua_numbers.py").string(),
                    folder.string()};
    options.stdout_file = "/dev/null";
    auto lint = base::Subprocess::start(options);
    if (!lint.ok()) return -1;
    const auto end = (*lint)->wait(support::kPatience_ms);
    return end ? end->code : -1;
  };
  const std::filesystem::path lua = support::source_dir() / "scheduler/store/lua";
  EXPECT_EQ(lint_says(lua), 0);
  support::TemporaryDirectory folder;
  std::ifstream whole(lua / "lib.lua");
  std::stringstream text;
  text << whole.rdbuf();
  std::string mutated = text.str();
  const std::string right = "string.format('%.0f', n)";
  ASSERT_NE(mutated.find(right), std::string::npos);
  mutated.replace(mutated.find(right), right.size(), "tostring(n)");
  std::ofstream(folder / "lib.lua") << mutated;
  EXPECT_EQ(lint_says(folder.path()), 1);
}

}  // namespace
}  // namespace dex::model
