#pragma once

#include <span>
#include <string_view>

namespace dex::train {

// The probe set of a base guard whose user gave none: short passages of many kinds (narrative,
// facts, instructions, talk, numbers, code, six languages), written for this and free of names that
// a training set could be about. They say how a model speaks in general, not how good it is: who
// guards a capability of his own gives rows of it as probe_file. Never changed: limits that users
// have set are of these texts.
std::span<const std::string_view> general_texts();

}  // namespace dex::train
