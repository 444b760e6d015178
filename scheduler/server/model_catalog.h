#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "dex/v1/models.pb.h"
#include "services/base/status.h"

namespace dex::server {

// The base models that the operator allows, from models.json ({"models": [{"name", "folder", …}]},
// folders relative to the file) and each folder's config.json. Read once; immutable afterwards, so
// thread-safe. No request ever names a path.
class ModelCatalog {
 public:
  // Fails with the file and key that is wrong.
  static base::Result<ModelCatalog> load(const std::filesystem::path& models_file);

  [[nodiscard]] const std::vector<v1::Model>& models() const { return models_; }
  // MODEL_NOT_FOUND names those that there are.
  [[nodiscard]] base::Result<v1::Model> find(const std::string& name) const;
  // Where the model's files lie on this machine; same error.
  [[nodiscard]] base::Result<std::filesystem::path> folder(const std::string& name) const;

 private:
  std::vector<v1::Model> models_;
  std::vector<std::filesystem::path> folders_;  // of each
};

}  // namespace dex::server
