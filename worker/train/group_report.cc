#include "worker/train/group_report.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "services/text/utf8.h"
#include "worker/train/failure.h"
#include "worker/train/number_text.h"

namespace dex::train {
namespace {

using nlohmann::json;
using Group = GroupSampling::Group;

constexpr size_t kGroupsOfEvent = 64, kGroupsOfText = 4, kNameBytes = 64;
// Rows that a pass reads more often than this are named: at four reads a row is still nearly as
// good as new text, at forty it has nothing left to teach (arXiv 2305.16264); a pass is one read.
constexpr double kManyRepeats = 10;

const char* group_kind(GroupBy by) {
  return by == GroupBy::kTag ? "tag" : "language";
}

// A tag may be as long as a line; names for people are not.
std::string short_group(const std::string& name) {
  const size_t length = text::utf8_prefix(name, kNameBytes);
  return length == name.size() ? name : name.substr(0, length) + "…";
}

std::string group_list(const std::set<std::string>& names) {
  std::string out;
  size_t shown = 0;
  for (const std::string& name : names) {
    if (shown == 2 * kGroupsOfText) return out + ", … (" + std::to_string(names.size()) + ")";
    out += (shown++ > 0 ? ", " : "") + ("\"" + short_group(name) + "\"");
  }
  return out;
}

// Of the rows that are trained on; at least one.
std::set<std::string> trained_groups(const Dataset& data) {
  std::set<std::string> names;
  for (const Example& example : data.train) names.insert(example.group);
  return names;
}

// Most tokens a pass first; of equal ones by name.
std::vector<const Group*> largest_groups(const GroupSampling& groups, size_t most) {
  std::vector<const Group*> out;
  for (const Group& group : groups.groups()) out.push_back(&group);
  std::stable_sort(out.begin(), out.end(),
                   [](const Group* a, const Group* b) { return a->pass_tokens > b->pass_tokens; });
  if (out.size() > most) out.resize(most);
  return out;
}

double ratio_of(const Group& group, const GroupSampling& groups) {
  return static_cast<double>(group.pass_tokens) / static_cast<double>(groups.pass_tokens());
}

std::string share_text(double ratio) {
  return number_text(100 * ratio) + " %";
}

}  // namespace

std::optional<GroupSampling> group_sampling(const JobSpec& spec, const Dataset& data) {
  const Hyperparameters& h = spec.hyperparameters;
  if (h.group_by == GroupBy::kNone) return std::nullopt;
  const std::set<std::string> trained = trained_groups(data);
  for (const auto& [name, weight] : h.group_weights) {
    if (trained.contains(name) || data.groups.contains(name)) continue;
    throw bad_spec("hyperparameters.group_weights",
                   "no row of the training file has " + std::string(group_kind(h.group_by)) +
                       " \"" + short_group(name) + "\"; there are " + group_list(data.groups));
  }
  if (trained.size() < 2) return std::nullopt;
  return GroupSampling(data.train, h.group_weights, spec.seed);
}

std::vector<std::string> group_warnings(const JobSpec& spec, const Dataset& data,
                                        const std::optional<GroupSampling>& groups) {
  const GroupBy by = spec.hyperparameters.group_by;
  if (by == GroupBy::kNone) return {};
  const std::string kind = group_kind(by);
  std::vector<std::string> warnings;
  const std::set<std::string> trained = trained_groups(data);
  for (const auto& [name, weight] : spec.hyperparameters.group_weights) {
    if (trained.contains(name)) continue;
    warnings.push_back("group_absent: all rows of " + kind + " \"" + short_group(name) +
                       "\" are held out or left out, so its weight has no effect");
  }
  if (!groups) {
    const std::string& only = *trained.begin();
    warnings.push_back("group_single: hyperparameters.group_by has nothing to balance: " +
                       (only == kNoGroup ? "no row to train on carries a " + kind
                                         : "every row to train on has " + kind + " \"" +
                                               short_group(only) + "\"") +
                       ", so rows are read as they are");
    return warnings;
  }
  size_t named = 0;
  for (const Group& group : groups->groups()) {
    if (group.repeats() <= kManyRepeats) continue;
    warnings.push_back(
        "group_repeated: a pass reads each row of " + kind + " \"" + short_group(group.name) +
        "\" " + number_text(group.repeats()) + " times, because all there is of it, " +
        std::to_string(group.tokens) + " tokens, is to be " + share_text(ratio_of(group, *groups)) +
        " of what is read; such rows are learnt by heart: add rows, or lower the weight in "
        "hyperparameters.group_weights");
    if (++named == kGroupsOfText) break;
  }
  return warnings;
}

std::string groups_json(const GroupSampling& groups) {
  json out = json::array();
  for (const Group* group : largest_groups(groups, kGroupsOfEvent)) {
    out.push_back({{"name", short_group(group->name)},
                   {"sequences", std::to_string(group->examples.size())},
                   {"tokens", std::to_string(group->tokens)},
                   {"weight", group->weight},
                   {"ratio", ratio_of(*group, groups)},
                   {"repeats", group->repeats()}});
  }
  return out.dump();
}

std::string groups_text(GroupBy by, const GroupSampling& groups) {
  std::string out = "rows drawn by " + std::string(group_kind(by)) + ": ";
  const auto shown = largest_groups(groups, kGroupsOfText);
  for (const Group* group : shown) {
    const bool first = group == shown.front();
    out += (first ? "" : ", ") + short_group(group->name) + " " +
           share_text(ratio_of(*group, groups)) + (first ? " of the tokens (" : " (") +
           number_text(group->repeats()) + " times a pass)";
  }
  const size_t more = groups.groups().size() - shown.size();
  return more == 0 ? out : out + " and " + std::to_string(more) + " more";
}

}  // namespace dex::train
