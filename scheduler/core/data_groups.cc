#include "scheduler/core/data_groups.h"

#include <cstdint>
#include <map>
#include <set>

namespace dex::core {

namespace {

using dex::v1::FineTuningJobSpec;
using dex::v1::Hyperparameters;

constexpr size_t kCountedGroups = 100;  // FileStatistics.rows_by_tag, rows_by_language
constexpr size_t kShownGroups = 8;
constexpr const char* kOtherRows =
    "(none)";  // the group of rows that carry none (finetuning.proto)

// What a job draws its rows by.
struct FileGroups {
  std::string kind;             // "tag", "language"; empty: it draws by none
  std::set<std::string> names;  // of the file's rows
  bool complete = true;         // false: there may be more
};

FileGroups groups_of(const FineTuningJobSpec& spec, const DataFacts& training) {
  const auto by = spec.hyperparameters().group_by();
  if (by != Hyperparameters::GROUP_BY_TAG && by != Hyperparameters::GROUP_BY_LANGUAGE) return {};
  const bool tags = by == Hyperparameters::GROUP_BY_TAG;
  FileGroups groups;
  groups.kind = tags ? "tag" : "language";
  int64_t rows = 0;
  for (const auto& [name, count] : tags ? training.rows_by_tag : training.rows_by_language) {
    groups.names.insert(name);
    rows += count;
  }
  groups.complete = groups.names.size() < kCountedGroups;
  if (rows < training.rows) groups.names.insert(kOtherRows);
  return groups;
}

}  // namespace

std::vector<Problem> check_groups(const FineTuningJobSpec& spec, const DataFacts& training) {
  const FileGroups groups = groups_of(spec, training);
  if (groups.kind.empty() || !groups.complete) return {};
  std::string there;
  size_t shown = 0;
  for (const std::string& name : groups.names) {
    if (++shown > kShownGroups) break;
    there += (there.empty() ? "\"" : ", \"") + name + "\"";
  }
  if (shown > kShownGroups) there += ", … (" + std::to_string(groups.names.size()) + ")";
  std::set<std::string> unknown;  // in an order of its own: the map has none
  for (const auto& [group, weight] : spec.hyperparameters().group_weights()) {
    if (!groups.names.contains(group)) unknown.insert(group);
  }
  std::vector<Problem> problems;
  for (const std::string& group : unknown) {
    problems.push_back({"INVALID_FIELD", "hyperparameters.group_weights",
                        "no row of the training file has " + groups.kind + " \"" + group +
                            "\"; there are " + there});
  }
  return problems;
}

std::string group_advice(const FineTuningJobSpec& spec, const DataFacts& training) {
  const FileGroups groups = groups_of(spec, training);
  if (groups.kind.empty() || groups.names.size() > 1) return "";
  const bool none = groups.names.empty() || groups.names.contains(kOtherRows);
  return "group_single: hyperparameters.group_by has nothing to balance: " +
         (none ? "no row of the training file carries a " + groups.kind
               : "every row of the training file has " + groups.kind + " \"" +
                     *groups.names.begin() + "\"") +
         ", so rows are read as they are";
}

}  // namespace dex::core
