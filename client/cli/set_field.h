#pragma once

#include <google/protobuf/message.h>

#include <string>

#include "services/base/status.h"

namespace dex::cli {

// Sets one field of a message by its path, from text: set_field(spec, "dex.lambda.end", "0.5").
// Enums take their full name or the part after the prefix in any case ("COSINE"), lists a
// comma-separated text, maps "key=value". The error of an unknown name lists the names there are at
// that place.
base::Status set_field(google::protobuf::Message& message, const std::string& path,
                       const std::string& value);

}  // namespace dex::cli
