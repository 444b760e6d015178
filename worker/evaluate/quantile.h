#pragma once

#include "services/statistics/quantile.h"

namespace dex::evaluate {

using statistics::quantile_of;

}  // namespace dex::evaluate
