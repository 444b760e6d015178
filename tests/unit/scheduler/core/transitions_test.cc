// The state table itself: its steps are those of jobs.md §2, written down here a second time by
// hand, and its rows contradict neither each other nor the rules that hold for all of them.
#include "scheduler/core/transitions.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/support/figures.h"

namespace dex::core {
namespace {

using Steps = std::set<std::pair<std::string, std::string>>;

std::string beginning_of(const Transition& row) {
  return std::string(row.from) + " " + std::string(row.script) + " " + std::string(row.outcome);
}

bool ended(std::string_view state) {
  return state == "SUCCEEDED" || state == "FAILED" || state == "CANCELLED";
}

TEST(TransitionsTest, StepsAreThoseOfTheDesign) {
  const Steps expected = {
      {"", "READY"},                // T1
      {"", "DELAYED"},              //
      {"DELAYED", "READY"},         // T2
      {"READY", "RUNNING"},         // T3
      {"RUNNING", "SUCCEEDED"},     // T5
      {"CANCELLING", "SUCCEEDED"},  //
      {"RUNNING", "READY"},         // T6, T8, T9
      {"RUNNING", "DELAYED"},       //
      {"RUNNING", "FAILED"},        // T6 to T9
      {"CANCELLING", "CANCELLED"},  // T10
      {"READY", "CANCELLED"},       // T11
      {"DELAYED", "CANCELLED"},     //
      {"PAUSED", "CANCELLED"},      //
      {"RUNNING", "CANCELLING"},    // T12
      {"READY", "PAUSED"},          // T13
      {"DELAYED", "PAUSED"},        //
      {"RUNNING", "PAUSED"},        //
      {"PAUSED", "READY"},          // T14
      {"FAILED", "READY"},          // T15
      {"READY", "READY"},           // T16
      {"SUCCEEDED", ""},            // T17
      {"FAILED", ""},               //
      {"CANCELLED", ""},            //
  };
  Steps found;
  for (const std::string_view from : stored_states()) {
    for (const std::string_view to : stored_states()) {
      if (may_follow(from, to)) found.emplace(from, to);
    }
  }
  EXPECT_EQ(found, expected);
}

// I5: nothing but redrive and purge touches the state of a job that has ended.
TEST(TransitionsTest, WhatHasEndedStays) {
  for (const Transition& row : transitions()) {
    if (!ended(row.from)) continue;
    EXPECT_TRUE(row.script == "redrive" || row.script == "purge") << beginning_of(row);
  }
}

TEST(TransitionsTest, OnlyTheOwnersAttemptEndsInSuccess) {
  for (const Transition& row : transitions()) {
    if (row.to != "SUCCEEDED" || row.from == row.to) continue;
    EXPECT_EQ(beginning_of(row).substr(row.from.size()), " finish success");
  }
}

// What the platform does costs the user nothing: jobs.md §6, none eats another's budget.
TEST(TransitionsTest, EachOutcomeHasItsOwnCounter) {
  const std::map<std::string, std::string> expected = {
      {"claim ", "attempt"},          {"finish fail_retry", "failures"},
      {"finish crash", "crashes"},    {"sweep lease", "crashes"},
      {"finish oom", "ooms"},         {"finish disk_full", "fulls"},
      {"finish release", "preempts"},
  };
  for (const Transition& row : transitions()) {
    const std::string act = std::string(row.script) + " " + std::string(row.outcome);
    const auto found = expected.find(act);
    const bool counts = found != expected.end() && row.from != "CANCELLING";
    EXPECT_EQ(row.counter, counts ? found->second : "") << beginning_of(row);
  }
  support::figure("P7", "outcomes_with_a_counter", static_cast<double>(expected.size()));
}

TEST(TransitionsTest, RowsOfOneBeginningExcludeEachOther) {
  std::map<std::string, std::vector<Guard>> guards;
  for (const Transition& row : transitions()) {
    auto& seen = guards[beginning_of(row)];
    EXPECT_EQ(std::find(seen.begin(), seen.end(), row.guard), seen.end()) << beginning_of(row);
    // The first whose guard is true holds, so nothing may stand behind "always".
    EXPECT_EQ(std::find(seen.begin(), seen.end(), Guard::kAlways), seen.end()) << beginning_of(row);
    seen.push_back(row.guard);
  }
}

TEST(TransitionsTest, RowsUseTheWordsThatAreDeclared) {
  const auto states = stored_states();
  for (const Transition& row : transitions()) {
    EXPECT_NE(std::find(states.begin(), states.end(), row.from), states.end()) << beginning_of(row);
    EXPECT_NE(std::find(states.begin(), states.end(), row.to), states.end()) << beginning_of(row);
    EXPECT_TRUE(std::any_of(acts().begin(), acts().end(), [&](const Act& act) {
      return act.script == row.script && act.outcome == row.outcome;
    })) << beginning_of(row);
    EXPECT_TRUE(may_act(row.from, row.script, row.outcome));
  }
  EXPECT_FALSE(may_act("RUNNING", "finish", "cancelled"));
  EXPECT_FALSE(may_act("CANCELLING", "pause", ""));
}

}  // namespace
}  // namespace dex::core
