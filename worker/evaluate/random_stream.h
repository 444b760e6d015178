#pragma once

#include "services/statistics/random_stream.h"

namespace dex::evaluate {

using statistics::Draw;
using statistics::RandomStream;

}  // namespace dex::evaluate
