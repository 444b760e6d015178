#pragma once

#include <string>
#include <vector>

#include "tests/integration/scheduler_model/reference.h"

namespace dex::model {

// Holds a step against what it should have done: every job whole, the step's entries of the event
// stream, tenants' accounts, workers, clocks, records of files and adapters, lengths of logs.
// Answers what differs.
std::vector<std::string> differences(const Expected& expected, const support::StoreSnapshot& before,
                                     const support::StoreSnapshot& after, int64_t now_ms);

// Request ids that the store remembers against those that were answered, both ways.
std::vector<std::string> wrong_requests(const Requests& requests,
                                        const support::StoreSnapshot& store);

}  // namespace dex::model
