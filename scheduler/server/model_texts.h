#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "scheduler/server/model_catalog.h"
#include "services/base/status.h"
#include "services/text/model_text.h"

namespace dex::server {

// Tokenizers and chat templates of the allowed base models, each loaded when it is first asked for
// and kept. Thread-safe.
class ModelTexts {
 public:
  explicit ModelTexts(const ModelCatalog& catalog) : catalog_(catalog) {}  // outlives this object

  // MODEL_NOT_FOUND; NOT_SUPPORTED where the scheduler's copy of the model's folder has no
  // tokenizer. Blocks on the disk the first time.
  base::Result<std::shared_ptr<const text::ModelText>> get(const std::string& model);

 private:
  const ModelCatalog& catalog_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<const text::ModelText>> loaded_;  // guarded by mutex_
};

}  // namespace dex::server
