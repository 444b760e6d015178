#pragma once

#include <string>

#include "scheduler/core/workload.h"
#include "scheduler/store/file_repository.h"
#include "services/base/status.h"

namespace dex::server {

// What is known of the rows of a READY file of purpose fine-tune; `field` is its name in errors.
// RESOURCE_NOT_FOUND, FILE_NOT_READY, FILE_INVALID.
base::Result<core::DataFacts> training_facts(store::FileRepository& files,
                                             const std::string& tenant, const std::string& file,
                                             const std::string& field);

}  // namespace dex::server
