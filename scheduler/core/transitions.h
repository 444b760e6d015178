#pragma once

#include <span>
#include <string_view>

// The state table of jobs.md §2 (T1 to T17) as data. The scripts of scheduler/store/lua do the
// transitions; the tests make every legal and illegal case from this table and hold the scripts and
// their event streams against it.
namespace dex::core {

// When a row holds, beyond the rules of its script (owner, tenant, arguments).
enum class Guard {
  kAlways,     // in every other case, where rows with other guards stand above
  kAtLimit,    // the counter is at its limit and this is one more
  kWantPause,  // a pause waits
  kWantHold,   // the job is to stop after its validation
  kDelay,      // submit with a delay; a failure with a back-off, a crash that is not the first
  kMarked,     // purge mark has been there
};

struct Transition {
  std::string_view from;     // stored state; "": no job
  std::string_view script;   // its name in scheduler/store/lua
  std::string_view outcome;  // what finish and purge are told and sweep finds; else ""
  Guard guard;               // of rows with the same beginning the first whose guard is true holds
  std::string_view to;       // stored state afterwards; "": no job
  std::string_view counter;  // of the job, raised by one; "": none
  bool event;                // it writes an entry to the event stream
};

std::span<const Transition> transitions();

// Every stored state, "" first.
std::span<const std::string_view> stored_states();
// Every (script, outcome) that acts on one job.
struct Act {
  std::string_view script, outcome;
};
std::span<const Act> acts();

// Whether some row with an event leads from one state to the other: what consecutive entries of one
// job in the event stream may be.
bool may_follow(std::string_view from, std::string_view to);
// Whether some row begins so; else the script refuses it or has nothing to do, and changes no key.
bool may_act(std::string_view from, std::string_view script, std::string_view outcome);

}  // namespace dex::core
