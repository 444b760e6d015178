#pragma once

#include <string>
#include <vector>

#include "dex/internal/v1/worker.pb.h"
#include "worker/agent/agent.h"
#include "worker/agent/model_list.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// What its slots compute on. Today a worker has only this one.
iv1::Device cpu_device(const std::string& worker_id);

// What a worker says of itself when it registers. `models`: its allow-list, so the base models that
// it trains and evaluates; `served`: those of them that its engines serve at `address`.
iv1::RegisterRequest identity(const AgentOptions& options,
                              const std::vector<BaseModelEntry>& models,
                              const std::vector<BaseModelEntry>& served,
                              const std::string& address);

}  // namespace dex::agent
