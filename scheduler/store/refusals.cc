#include "scheduler/store/refusals.h"

#include "scheduler/store/alphabet.h"
#include "scheduler/store/store.h"

namespace dex::store {

base::Status job_not_found(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no job '" + shown(id) + "'.")
      .with_metadata("resource_type", "job")
      .with_metadata("resource_name", shown(id));
}

base::Status state_conflict(const std::string& id, const std::string& state) {
  return base::failed_precondition("JOB_STATE_CONFLICT",
                                   "The job '" + shown(id) + "' is " + state + ".")
      .with_metadata("state", state);
}

base::Status file_refused(const std::string& id, const std::string& state) {
  if (state == "INVALID") {
    return base::failed_precondition("FILE_INVALID",
                                     "The file '" + id + "' has faults; ListFindings names them.");
  }
  if (state == "LOST") {
    return base::failed_precondition(
        "FILE_INVALID", "The bytes of the file '" + id + "' are gone; upload it again.");
  }
  if (!state.empty()) {
    return base::failed_precondition("FILE_NOT_READY",
                                     "The file '" + id + "' is " + state + ", must be READY.");
  }
  return base::not_found("RESOURCE_NOT_FOUND", "There is no file '" + shown(id) + "'.")
      .with_metadata("resource_type", "file")
      .with_metadata("resource_name", shown(id));
}

base::Status adapter_not_found(const std::string& id) {
  return base::not_found("RESOURCE_NOT_FOUND", "There is no adapter '" + shown(id) + "'.")
      .with_metadata("resource_type", "adapter")
      .with_metadata("resource_name", shown(id));
}

base::Status entry_refused(std::string_view script, const Reply& reply) {
  const std::string& word = reply.str(0);
  if (word == "CONFLICT") return idempotency_conflict(reply.str(1));
  if (word == "IDTAKEN") {
    return {base::Code::kAlreadyExists, "ID_TAKEN", "The id " + reply.str(1) + " is in use."};
  }
  if (word == "NOTUNIQUE") {
    return base::Status(base::Code::kAlreadyExists, "NAME_TAKEN",
                        "The name is held by the live job " + reply.str(1) + ".")
        .with_metadata("job", reply.str(1));
  }
  if (word == "NOFILE") return file_refused(reply.str(1), reply.str(2));
  if (word == "NOADAPTER") return adapter_not_found(reply.str(1));
  if (word == "QUOTA") {
    return {base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
            "The tenant has " + reply.str(1) + " queued jobs, at most " + reply.str(2) +
                " are allowed."};
  }
  if (word == "BADARG") {
    return base::invalid_argument("INVALID_FIELD",
                                  std::string(script) + " refused: " + reply.str(1));
  }
  return unexpected(script, reply);
}

}  // namespace dex::store
