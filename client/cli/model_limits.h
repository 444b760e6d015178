#pragma once

#include "client/cli/command.h"
#include "dex/v1/models.pb.h"

namespace dex::cli {

// `models limits`: what jobs of a method may ask for, what they publish, where they fit.
void add_model_limits(CLI::App& models, Action& action);
// For people: artefacts with the pools they fit in, then the ranges.
Table model_limits_table(const v1::ModelLimits& limits);
Table model_ranges_table(const v1::ModelLimits& limits);

}  // namespace dex::cli
