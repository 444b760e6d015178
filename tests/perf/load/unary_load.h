#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace dex::perf {

// Generate of 100 bytes in and 100 out against `server`, which answers at once. Both throw
// std::runtime_error with the first failure of a call.

// Microseconds of each of `calls` calls, one after the other on one connection that is warm.
std::vector<double> latencies(const std::string& server, int calls);

// Calls a second with `in_flight` at any time, over `connections` of them, for about `time`.
double rate(const std::string& server, int in_flight, int connections,
            std::chrono::milliseconds time);

}  // namespace dex::perf
