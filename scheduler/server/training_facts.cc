#include "scheduler/server/training_facts.h"

#include "scheduler/server/file_view.h"

namespace dex::server {

base::Result<core::DataFacts> training_facts(store::FileRepository& files,
                                             const std::string& tenant, const std::string& file,
                                             const std::string& field) {
  auto record = files.get(tenant, file);
  if (!record.ok())
    return base::Status(record.status()).with_violation(field, record.status().message());
  DEX_RETURN_IF_ERROR(require_ready(*record, field));
  if (record->purpose != kEvalsPurpose) return core::data_facts(file_view(*record));
  const std::string text =
      "was uploaded for evaluations, its rows are not checked; upload it again "
      "with FILE_PURPOSE_FINE_TUNE";
  return base::failed_precondition("FILE_INVALID", field + ": the file '" + file + "' " + text)
      .with_violation(field, text);
}

}  // namespace dex::server
