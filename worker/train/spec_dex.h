#pragma once

#include "dex/v1/finetuning.pb.h"
#include "worker/train/spec.h"

// Private to this room; has protobuf in it, so only spec_io.cc and spec_dex.cc include it.
namespace dex::train::detail {

// The method's part of a spec: form, projection, λ, heads (method.md §3). Its values have passed
// proto/spec_values.h.
void read_dex(const dex::v1::DexMethod& method, JobSpec& out);

}  // namespace dex::train::detail
