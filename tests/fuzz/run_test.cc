// The driver sees what a fault does to a process, names the input, and can have it again.
#include "tests/fuzz/run.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>

#include "tests/fuzz/mutations.h"
#include "tests/support/sanitizer.h"

namespace dex::fuzz {
namespace {

const Corpus kCorpus = {{"{\"length\": 12, \"name\": \"one\"}", "two"}, {"word"}};

RunOptions quick() {
  RunOptions options;
  options.count = 2'000;
  options.seconds = 120;
  options.input_seconds = 1;
  return options;
}

bool holds(const uint8_t* data, size_t size, std::string_view what) {
  return view(data, size).find(what) != std::string_view::npos;
}

int never_fails(const uint8_t*, size_t) {
  taken();
  return 0;
}

int crashes_on_a_word(const uint8_t* data, size_t size) {
  if (holds(data, size, "word")) std::abort();
  return 0;
}

int throws_on_a_limit(const uint8_t* data, size_t size) {
  if (holds(data, size, "2147483648")) throw std::logic_error("no one's to catch");
  return 0;
}

// As parsers do that catch everything: what was asked for must be seen all the same.
int asks_for_too_much(const uint8_t* data, size_t size) {
  try {
    if (holds(data, size, "4294967296")) {
      const auto memory = std::make_unique<char[]>(size_t{4} << 30);
      std::memset(memory.get(), 1, size_t{4} << 30);
    }
  } catch (const std::bad_alloc&) {
  }
  return 0;
}

int never_ends(const uint8_t* data, size_t size) {
  volatile bool more = holds(data, size, "Infinity");
  while (more) {
  }
  return 0;
}

void expect_found(OneInput target, const std::string& how) {
  const Outcome outcome = run(target, kCorpus, quick());
  EXPECT_NE(outcome.failure.find(how), std::string::npos) << outcome.failure;
  EXPECT_EQ(outcome.inputs, outcome.index);  // those before it ended well
  const std::string input = input_of(kCorpus, quick().seed, outcome.index);
  EXPECT_EQ(run_one(target, input, quick()), outcome.failure);
  EXPECT_EQ(run_one(target, kCorpus.seeds.front(), quick()), "");
}

TEST(FuzzDriverTest, ARunWithoutAFaultCountsItsInputs) {
  const Outcome outcome = run(never_fails, kCorpus, quick());
  EXPECT_EQ(outcome.failure, "");
  EXPECT_EQ(outcome.inputs, 2'000u);
  EXPECT_EQ(outcome.taken, 2'000u);
}

TEST(FuzzDriverTest, ACrashIsFound) {
  expect_found(crashes_on_a_word, support::kSanitized ? "" : "Aborted");
}

TEST(FuzzDriverTest, AnExceptionThatNobodyCatchesIsFound) {
  expect_found(throws_on_a_limit, support::kSanitized ? "" : "Aborted");
}

TEST(FuzzDriverTest, MemoryThatIsAskedForIsFoundThoughTheParserCatchesIt) {
  if (support::kSanitized) GTEST_SKIP() << "memory is not limited under a sanitizer";
  expect_found(asks_for_too_much, "Aborted");
}

TEST(FuzzDriverTest, AParserThatDoesNotEndIsFound) {
  if (support::kSanitized) GTEST_SKIP() << "takes a minute there";
  expect_found(never_ends, "processor time");
}

TEST(FuzzDriverTest, TheSameSeedGivesTheSameInputsAndAnotherOneOthers) {
  std::set<std::string> inputs;
  size_t others = 0;
  for (uint64_t i = 0; i < 500; ++i) {
    const std::string input = input_of(kCorpus, 7, i);
    EXPECT_EQ(input, input_of(kCorpus, 7, i));
    EXPECT_LE(input.size(), kLongestInput);
    others += input != input_of(kCorpus, 8, i) ? 1 : 0;
    inputs.insert(input);
  }
  EXPECT_GT(inputs.size(), 300u);
  EXPECT_GT(others, 300u);
  EXPECT_EQ(input_of(kCorpus, 7, 1), kCorpus.seeds[1]);
}

TEST(FuzzDriverTest, PartsAreJoinedAndTakenApart) {
  const std::vector<std::string> parts = {"a\nb", "", "=====", std::string("\0\n", 2)};
  EXPECT_EQ(parts_of(joined(parts)), parts);
  EXPECT_EQ(parts_of("no border"), std::vector<std::string>{"no border"});
}

}  // namespace
}  // namespace dex::fuzz
