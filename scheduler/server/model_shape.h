#pragma once

#include <nlohmann/json_fwd.hpp>

#include "dex/v1/models.pb.h"
#include "services/base/status.h"

namespace dex::server {

// Fills family, shape and parameter count of `model` from its config.json. INVALID_FIELD names the
// key that is missing or odd, or a model_type that no worker can load.
//
// The families are those of worker/model/families.h; here only what counting needs of them. Workers
// read config.json strictly, key by key, when they load the model.
base::Status read_model_shape(const nlohmann::json& config, v1::Model& model);

}  // namespace dex::server
