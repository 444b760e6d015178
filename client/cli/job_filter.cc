#include "client/cli/job_filter.h"

#include <google/protobuf/util/time_util.h>

#include <CLI/CLI.hpp>

#include "client/cli/set_field.h"

namespace dex::cli {

namespace {

constexpr size_t kDateLetters = 10;  // 2026-11-30

base::Status set_time(const std::string& flag, const std::string& text,
                      google::protobuf::Timestamp& time) {
  const std::string whole = text.size() == kDateLetters ? text + "T00:00:00Z" : text;
  if (google::protobuf::util::TimeUtil::FromString(whole, &time)) return {};
  return base::invalid_argument("INVALID_FIELD",
                                flag +
                                    " must be a day or a time in UTC, such as 2026-11-30 or "
                                    "2026-11-30T08:00:00Z, got \"" +
                                    text + "\"");
}

}  // namespace

void add_job_filter_flags(CLI::App& verb, JobFilterFlags& flags) {
  verb.add_option(
          "--state", flags.states,
          "queued, validating_files, running, pausing, cancelling, paused, succeeded, failed, "
          "cancelled or expired (may be repeated)")
      ->allow_extra_args(false);
  verb.add_option("--model", flags.model, "only jobs on this base model");
  verb.add_option("--method", flags.method, "dex, kvo_only, lora, adapter, full or diff");
  verb.add_option("--preset", flags.preset, "by its name, or name@version");
  verb.add_option("--suffix", flags.suffix, "whose suffix begins so");
  verb.add_option("--metadata", flags.metadata, "key=value (may be repeated: all of them)")
      ->allow_extra_args(false);
  verb.add_option("--text", flags.text,
                  "with this in id, name, suffix, model, adapter or metadata, letters of any case");
  verb.add_option("--created-after", flags.created_after,
                  "a day or a time in UTC: 2026-11-30, 2026-11-30T08:00:00Z");
  verb.add_option("--created-before", flags.created_before, "likewise");
}

base::Result<v1::ListFineTuningJobsRequest::Filter> make_job_filter(const JobFilterFlags& flags) {
  v1::ListFineTuningJobsRequest::Filter filter;
  for (const auto& state : flags.states) DEX_RETURN_IF_ERROR(set_field(filter, "states", state));
  for (const auto& pair : flags.metadata) DEX_RETURN_IF_ERROR(set_field(filter, "metadata", pair));
  const auto set = [&filter](const std::string& field, const std::string& text) {
    return text.empty() ? base::Status() : set_field(filter, field, text);
  };
  DEX_RETURN_IF_ERROR(set("model", flags.model));
  DEX_RETURN_IF_ERROR(set("method", flags.method));
  DEX_RETURN_IF_ERROR(set("preset", flags.preset));
  DEX_RETURN_IF_ERROR(set("suffix_prefix", flags.suffix));
  DEX_RETURN_IF_ERROR(set("text", flags.text));
  if (!flags.created_after.empty()) {
    DEX_RETURN_IF_ERROR(
        set_time("--created-after", flags.created_after, *filter.mutable_created_after()));
  }
  if (!flags.created_before.empty()) {
    DEX_RETURN_IF_ERROR(
        set_time("--created-before", flags.created_before, *filter.mutable_created_before()));
  }
  return filter;
}

}  // namespace dex::cli
