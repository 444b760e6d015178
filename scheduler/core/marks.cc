#include "scheduler/core/marks.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace dex::core {

namespace {

using dex::v1::FineTuningJobSpec;
using dex::v1::Preset;

// method.md §7.
constexpr std::array<std::string_view, 3> kBaselinesOfTheBrief = {"lora.r", "dex.lora.r",
                                                                  "adapter.size"};

// Those that may have given a value: the job's own, then those of which a default takes what its
// own leaves out (resolve.cc, add_partners).
std::vector<Preset> givers(const FineTuningJobSpec& spec, SizeClass size) {
  const std::string own = spec.has_dex() ? spec.dex().preset() : spec.kvo_only().preset();
  std::vector<Preset> out;
  for (const std::string& name :
       {own, std::string("auto"), std::string("paper"), std::string("multilingual")}) {
    if (auto found = preset(name, size); found.ok()) out.push_back(std::move(found).value());
  }
  return out;
}

// Whose the value at `path` is; a preset that has another one there says nothing of it.
std::string mark_of(const std::string& path, const FineTuningJobSpec& spec,
                    const std::vector<Preset>& presets) {
  for (const Preset& giver : presets) {
    const auto mark = giver.sources().find(path);
    if (mark != giver.sources().end() && same_field(giver.spec(), spec, path)) return mark->second;
  }
  return "ours";
}

}  // namespace

void mark_sources(const FineTuningJobSpec& spec, SizeClass size, Sources& sources) {
  const std::vector<Preset> presets = givers(spec, size);
  const auto of_the_brief = [](const std::string& path) {
    return std::any_of(kBaselinesOfTheBrief.begin(), kBaselinesOfTheBrief.end(),
                       [&](std::string_view each) { return each == path; });
  };
  for (auto& [path, source] : sources) {
    if (source == "PRESET" || source == "DEFAULT") {
      source += " (" + mark_of(path, spec, presets) + ")";
    } else if (source == "AUTO" && of_the_brief(path)) {
      source += " (brief)";
    }
  }
}

}  // namespace dex::core
