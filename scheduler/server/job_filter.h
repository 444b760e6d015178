#pragma once

#include <cstdint>

#include "dex/v1/finetuning.pb.h"
#include "services/base/status.h"

namespace dex::server {

// Which jobs a list is asked for (ListFineTuningJobsRequest.Filter). Keeps a copy. Pure.
class JobFilter {
 public:
  using Message = v1::ListFineTuningJobsRequest::Filter;

  // INVALID_FIELD for a method that there is not, CONFLICTING_FIELDS for a span of time that is
  // empty.
  static base::Result<JobFilter> create(const Message& asked);

  // `job` with its effective_config (job_view.h).
  [[nodiscard]] bool matches(const v1::FineTuningJob& job) const;
  // Lists go from new to old: whether neither a job created at `created_ms` nor any after it in the
  // list can match.
  [[nodiscard]] bool is_past(int64_t created_ms) const;
  // Nothing created in this millisecond or later matches; -1: nothing is too new.
  [[nodiscard]] int64_t before_ms() const;

 private:
  explicit JobFilter(Message asked) : asked_(std::move(asked)) {}
  Message asked_;
};

}  // namespace dex::server
