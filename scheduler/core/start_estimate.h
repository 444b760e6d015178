#pragma once

#include <optional>
#include <vector>

namespace dex::core {

// What is known of a job that runs. Seconds; negative `remaining`: its trainer has told none yet.
struct RunningJob {
  double elapsed_seconds = 0;     // of this attempt
  double remaining_seconds = -1;  // as its trainer works it out from the rate of its own steps
  double estimated_seconds = 0;   // of the whole, by formula before it started; 0: none was made
};

// How much longer than estimated these jobs take: the median of (elapsed + remaining) / estimated
// of those that say it, within 0.1 and 10; 1 where none does.
double slowness(const std::vector<RunningJob>& running);

// In how many seconds a waiting job starts, by handing the slots of its pool out in the queue's
// order: `free_slots` are idle, each running job holds one for what its trainer says remains, or
// for its estimate × slowness() less what has passed; each job ahead takes the slot that is free
// first for its own estimate (`ahead_seconds`, in the queue's order) × slowness(). Nothing without
// any slot. Turns between tenants, retries and new workers are not foreseen.
std::optional<double> starts_in_seconds(int free_slots, const std::vector<RunningJob>& running,
                                        const std::vector<double>& ahead_seconds);

}  // namespace dex::core
