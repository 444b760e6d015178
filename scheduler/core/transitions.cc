#include "scheduler/core/transitions.h"

#include <algorithm>
#include <array>
#include <iterator>

namespace dex::core {

namespace {

constexpr std::array<std::string_view, 9> kStates = {
    "", "DELAYED", "READY", "RUNNING", "CANCELLING", "PAUSED", "SUCCEEDED", "FAILED", "CANCELLED"};

constexpr std::array<Act, 22> kActs = {{{"submit", ""},
                                        {"claim", ""},
                                        {"beat", ""},
                                        {"finish", "success"},
                                        {"finish", "fail_retry"},
                                        {"finish", "fail_final"},
                                        {"finish", "crash"},
                                        {"finish", "oom"},
                                        {"finish", "disk_full"},
                                        {"finish", "release"},
                                        {"finish", "paused"},
                                        {"finish", "cancelled"},
                                        {"sweep", "due"},
                                        {"sweep", "lease"},
                                        {"sweep", "deadline"},
                                        {"cancel", ""},
                                        {"pause", ""},
                                        {"resume", ""},
                                        {"redrive", ""},
                                        {"reprio", ""},
                                        {"purge", "mark"},
                                        {"purge", "commit"}}};

constexpr Guard kAlways = Guard::kAlways;

// clang-format off
constexpr Transition kTable[] = {
    // T1
    {"", "submit", "", Guard::kDelay, "DELAYED", "", true},
    {"", "submit", "", kAlways, "READY", "", true},
    // T2
    {"DELAYED", "sweep", "due", kAlways, "READY", "", true},
    // T3
    {"READY", "claim", "", kAlways, "RUNNING", "attempt", true},
    // T4
    {"RUNNING", "beat", "", kAlways, "RUNNING", "", false},
    {"CANCELLING", "beat", "", kAlways, "CANCELLING", "", false},
    // T5
    {"RUNNING", "finish", "success", kAlways, "SUCCEEDED", "", true},
    {"CANCELLING", "finish", "success", kAlways, "SUCCEEDED", "", true},
    // T6 and, with a pause that waits, T13
    {"RUNNING", "finish", "fail_retry", Guard::kAtLimit, "FAILED", "failures", true},
    {"RUNNING", "finish", "fail_retry", Guard::kWantPause, "PAUSED", "failures", true},
    {"RUNNING", "finish", "fail_retry", Guard::kDelay, "DELAYED", "failures", true},
    {"RUNNING", "finish", "fail_retry", kAlways, "READY", "failures", true},
    {"RUNNING", "finish", "crash", Guard::kAtLimit, "FAILED", "crashes", true},
    {"RUNNING", "finish", "crash", Guard::kWantPause, "PAUSED", "crashes", true},
    {"RUNNING", "finish", "crash", Guard::kDelay, "DELAYED", "crashes", true},
    {"RUNNING", "finish", "crash", kAlways, "READY", "crashes", true},
    {"RUNNING", "finish", "oom", Guard::kAtLimit, "FAILED", "ooms", true},
    {"RUNNING", "finish", "oom", Guard::kWantPause, "PAUSED", "ooms", true},
    {"RUNNING", "finish", "oom", kAlways, "READY", "ooms", true},
    {"RUNNING", "finish", "disk_full", Guard::kAtLimit, "PAUSED", "fulls", true},
    {"RUNNING", "finish", "disk_full", Guard::kWantPause, "PAUSED", "fulls", true},
    {"RUNNING", "finish", "disk_full", kAlways, "READY", "fulls", true},
    // T7
    {"RUNNING", "finish", "fail_final", kAlways, "FAILED", "", true},
    // T8
    {"RUNNING", "finish", "release", Guard::kAtLimit, "FAILED", "preempts", true},
    {"RUNNING", "finish", "release", Guard::kWantPause, "PAUSED", "preempts", true},
    {"RUNNING", "finish", "release", kAlways, "READY", "preempts", true},
    // T9
    {"RUNNING", "sweep", "lease", Guard::kAtLimit, "FAILED", "crashes", true},
    {"RUNNING", "sweep", "lease", Guard::kWantPause, "PAUSED", "crashes", true},
    {"RUNNING", "sweep", "lease", Guard::kDelay, "DELAYED", "crashes", true},
    {"RUNNING", "sweep", "lease", kAlways, "READY", "crashes", true},
    // T10: nothing of an attempt that was told to stop counts
    {"CANCELLING", "finish", "fail_retry", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "fail_final", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "crash", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "oom", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "disk_full", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "release", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "paused", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "finish", "cancelled", kAlways, "CANCELLED", "", true},
    {"CANCELLING", "sweep", "lease", kAlways, "CANCELLED", "", true},
    // T11
    {"DELAYED", "cancel", "", kAlways, "CANCELLED", "", true},
    {"READY", "cancel", "", kAlways, "CANCELLED", "", true},
    {"PAUSED", "cancel", "", kAlways, "CANCELLED", "", true},
    {"DELAYED", "sweep", "deadline", kAlways, "CANCELLED", "", true},
    {"READY", "sweep", "deadline", kAlways, "CANCELLED", "", true},
    {"PAUSED", "sweep", "deadline", kAlways, "CANCELLED", "", true},
    // T12
    {"RUNNING", "cancel", "", kAlways, "CANCELLING", "", true},
    {"RUNNING", "sweep", "deadline", kAlways, "CANCELLING", "", true},
    // T13
    {"DELAYED", "pause", "", kAlways, "PAUSED", "", true},
    {"READY", "pause", "", kAlways, "PAUSED", "", true},
    {"RUNNING", "pause", "", kAlways, "RUNNING", "", false},
    {"RUNNING", "finish", "paused", Guard::kWantPause, "PAUSED", "", true},
    {"RUNNING", "finish", "paused", Guard::kWantHold, "PAUSED", "", true},
    {"RUNNING", "finish", "paused", kAlways, "READY", "", true},
    // T14
    {"PAUSED", "resume", "", kAlways, "READY", "", true},
    {"DELAYED", "resume", "", Guard::kWantHold, "DELAYED", "", false},
    {"READY", "resume", "", Guard::kWantHold, "READY", "", false},
    {"RUNNING", "resume", "", Guard::kWantHold, "RUNNING", "", false},
    {"RUNNING", "resume", "", Guard::kWantPause, "RUNNING", "", false},
    // T15
    {"FAILED", "redrive", "", kAlways, "READY", "", true},
    // T16: the event is there because the place in the queue changes
    {"READY", "reprio", "", kAlways, "READY", "", true},
    {"DELAYED", "reprio", "", kAlways, "DELAYED", "", false},
    {"RUNNING", "reprio", "", kAlways, "RUNNING", "", false},
    {"CANCELLING", "reprio", "", kAlways, "CANCELLING", "", false},
    {"PAUSED", "reprio", "", kAlways, "PAUSED", "", false},
    // T17
    {"SUCCEEDED", "purge", "mark", kAlways, "SUCCEEDED", "", false},
    {"FAILED", "purge", "mark", kAlways, "FAILED", "", false},
    {"CANCELLED", "purge", "mark", kAlways, "CANCELLED", "", false},
    {"SUCCEEDED", "purge", "commit", Guard::kMarked, "", "", true},
    {"FAILED", "purge", "commit", Guard::kMarked, "", "", true},
    {"CANCELLED", "purge", "commit", Guard::kMarked, "", "", true},
};
// clang-format on

}  // namespace

std::span<const Transition> transitions() {
  return kTable;
}
std::span<const std::string_view> stored_states() {
  return kStates;
}
std::span<const Act> acts() {
  return kActs;
}

bool may_follow(std::string_view from, std::string_view to) {
  return std::any_of(std::begin(kTable), std::end(kTable), [&](const Transition& row) {
    return row.event && row.from == from && row.to == to;
  });
}

bool may_act(std::string_view from, std::string_view script, std::string_view outcome) {
  return std::any_of(std::begin(kTable), std::end(kTable), [&](const Transition& row) {
    return row.from == from && row.script == script && row.outcome == outcome;
  });
}

}  // namespace dex::core
