#include "scheduler/server/job_filter.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <utility>

#include "scheduler/core/methods.h"
#include "scheduler/core/presets.h"
#include "scheduler/server/times.h"
#include "services/base/nearest.h"

namespace dex::server {

namespace {

using google::protobuf::Timestamp;

constexpr const char* kNoTime = "must be a time between the years 1 and 9999";

std::string folded(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// As protobuf allows: from year 1 to year 9999.
bool is_time(const Timestamp& time) {
  return time.seconds() >= -62'135'596'800 && time.seconds() <= 253'402'300'799 &&
         time.nanos() >= 0 && time.nanos() < 1'000'000'000;
}

bool is_before(const Timestamp& a, const Timestamp& b) {
  return std::pair(a.seconds(), a.nanos()) < std::pair(b.seconds(), b.nanos());
}

// Its name in JSON: the oneof's fields are called like the methods.
std::string_view method_of(const v1::FineTuningJobSpec& spec) {
  const auto* oneof = v1::FineTuningJobSpec::descriptor()->FindOneofByName("method");
  const auto* field = spec.GetReflection()->GetOneofFieldDescriptor(spec, oneof);
  return field == nullptr ? std::string_view() : std::string_view(field->name());
}

bool has_preset(const v1::FineTuningJob& job, const std::string& asked) {
  const std::string& version = job.effective_config().preset_version();  // "code@1"
  const std::string wanted = core::canonical_preset_name(asked);
  return wanted == version || wanted == version.substr(0, version.find('@'));
}

bool has_pairs(const v1::FineTuningJob& job, const JobFilter::Message& filter) {
  return std::all_of(filter.metadata().begin(), filter.metadata().end(), [&job](const auto& pair) {
    const auto found = job.metadata().find(pair.first);
    return found != job.metadata().end() && found->second == pair.second;
  });
}

// What people would look for: names, ids, and what they have written to it themselves.
bool has_text(const v1::FineTuningJob& job, const std::string& asked) {
  const std::string wanted = folded(asked);
  const auto says = [&wanted](const std::string& text) {
    return folded(text).find(wanted) != std::string::npos;
  };
  if (says(job.id()) || says(job.display_name()) || says(job.suffix()) || says(job.model()) ||
      says(job.fine_tuned_model()))
    return true;
  return std::any_of(job.metadata().begin(), job.metadata().end(),
                     [&says](const auto& pair) { return says(pair.first) || says(pair.second); });
}

}  // namespace

base::Result<JobFilter> JobFilter::create(const Message& asked) {
  const auto& methods = core::method_names();
  if (!asked.method().empty() &&
      std::find(methods.begin(), methods.end(), asked.method()) == methods.end()) {
    std::string what = "is no method: '" + asked.method().substr(0, 64) + "'";
    const auto meant = base::nearest(asked.method(), methods);
    if (!meant.empty()) what += "; did you mean '" + std::string(meant) + "'?";
    what += " There are";
    for (const auto method : methods) what += " " + std::string(method);
    return base::invalid_field("filter.method", what);
  }
  if (!is_time(asked.created_after())) return base::invalid_field("filter.created_after", kNoTime);
  if (!is_time(asked.created_before()))
    return base::invalid_field("filter.created_before", kNoTime);
  if (asked.has_created_after() && asked.has_created_before() &&
      !is_before(asked.created_after(), asked.created_before())) {
    return base::bad_field("CONFLICTING_FIELDS", "filter.created_before",
                           "must be later than created_after");
  }
  return JobFilter(asked);
}

bool JobFilter::matches(const v1::FineTuningJob& job) const {
  const auto& states = asked_.states();
  if (!states.empty() && std::find(states.begin(), states.end(), job.state()) == states.end())
    return false;
  if (!asked_.model().empty() && asked_.model() != job.model() &&
      asked_.model() != job.base_model())
    return false;
  if (!asked_.method().empty() && asked_.method() != method_of(job.effective_config().spec()))
    return false;
  if (!asked_.preset().empty() && !has_preset(job, asked_.preset())) return false;
  if (!folded(job.suffix()).starts_with(folded(asked_.suffix_prefix()))) return false;
  if (asked_.has_created_after() && is_before(job.create_time(), asked_.created_after()))
    return false;
  if (asked_.has_created_before() && !is_before(job.create_time(), asked_.created_before()))
    return false;
  if (!has_pairs(job, asked_)) return false;
  return asked_.text().empty() || has_text(job, asked_.text());
}

bool JobFilter::is_past(int64_t created_ms) const {
  return asked_.has_created_after() && is_before(timestamp(created_ms), asked_.created_after());
}

int64_t JobFilter::before_ms() const {
  if (!asked_.has_created_before()) return -1;
  // The millisecond that it lies in may still have a job of before.
  return std::max<int64_t>(unix_ms(asked_.created_before()) + 1, 0);
}

}  // namespace dex::server
