#pragma once

#include <span>
#include <string_view>

// The state table of jobs.md §2 (T1 to T17) as data. The scripts of scheduler/store/lua do the
// transitions; the tests make every legal and illegal case from this table and hold the scripts and
// their event streams against it.
namespace dex::core {

// When a row holds, beyond the rules of its script (owner, tenant). Rows of one (from, script,
// outcome) have different guards; exactly one of them is true.
enum class Guard {
  kAlways,
  kNoDelay,    // submit without a delay; a failure whose back-off is 0
  kDelay,      // submit with a delay; a failure with a back-off
  kWantRun,    // nobody wants the job paused
  kWantPause,  // a pause waits
  kWantHold,   // the job is to stop after its validation
  kAtLimit,    // one more than the counter's limit
};

struct Transition {
  std::string_view from;    // stored state; "": no job
  std::string_view script;  // its name in scheduler/store/lua
  std::string_view
      outcome;  // finish: its outcome; sweep: lease, due, deadline; purge: mark, commit
  Guard guard;
  std::string_view to;       // stored state afterwards; "": no job
  std::string_view counter;  // of the job, raised by one; "": none
};

std::span<const Transition> transitions();

// Every stored state, "" first.
std::span<const std::string_view> stored_states();
// Every (script, outcome) that acts on one job.
struct Act {
  std::string_view script, outcome;
};
std::span<const Act> acts();

// Whether some row leads from one state to the other: what consecutive entries of the event stream
// may be.
bool may_follow(std::string_view from, std::string_view to);
// Whether some row begins so; else the scripts refuse it, or do nothing.
bool may_act(std::string_view from, std::string_view script, std::string_view outcome);

}  // namespace dex::core
