#include "scheduler/server/job_id.h"

#include "services/base/ids.h"

namespace dex::server {

base::Status missing(const std::string& field) {
  return base::bad_field("MISSING_FIELD", field, "is missing");
}

base::Status store_keeps(const base::Status& health) {
  if (health.ok() || health.code() == base::Code::kUnavailable) return health;
  return base::unavailable("STORE_UNAVAILABLE", health.message());
}

base::Status check_job_id(const std::string& id, const std::string& prefix,
                          const std::string& type) {
  if (id.empty()) return missing("id");
  if (base::is_id(id, prefix)) return {};
  const std::string name = id.substr(0, 64);
  return base::not_found("RESOURCE_NOT_FOUND", "There is no " + type + " '" + name + "'.")
      .with_metadata("resource_type", type)
      .with_metadata("resource_name", name);
}

base::Status check_priority_scope(const auth::Principal& who, uint32_t priority) {
  constexpr uint32_t kOperators = 7, kHighest = 9;
  const bool operators = priority >= kOperators && priority <= kHighest;
  return operators ? auth::require(who, auth::Scope::kAdmin) : base::Status();
}

}  // namespace dex::server
