#include "tests/unit/worker/serve/tiny_folder.h"

#include "tests/unit/worker/model/family_models.h"
#include "tests/unit/worker/model/unilm_folder.h"
#include "tests/unit/worker/serve/tiny_adapters.h"
#include "tests/unit/worker/train_memory/failing_allocator.h"
#include "worker/model/weights.h"

namespace dex::serve::testing {

void write_tiny_model(const std::filesystem::path& folder) {
  train::testing::write_tiny_model(folder);
}

void write_tiny_adapter(const std::filesystem::path& folder, const std::filesystem::path& model) {
  model::write_adapter(folder,
                       tiny_adapter(tiny_options()[0], 7, model::base_weights_sha256(model)));
}

void write_idle_adapter(const std::filesystem::path& folder, const std::filesystem::path& model) {
  model::write_adapter(folder, tiny_adapter(tiny_options()[kAttentionLora], 7,
                                            model::base_weights_sha256(model), /*scale=*/0));
}

void write_foreign_adapter(const std::filesystem::path& folder) {
  model::write_adapter(folder, tiny_adapter(tiny_options()[0], 7, std::string(64, 'b')));
}

void write_unilm(const std::filesystem::path& diffllama, const std::filesystem::path& unilm) {
  namespace families = dex::testing;
  const std::string family = families::differential_family_names().front();  // without biases
  families::write_family(diffllama, family,
                         families::family_tensors(families::family_golden(family)));
  families::write_unilm(diffllama, unilm);
}

void fail_allocation(int64_t n) {
  train::testing::FailingAllocator::installed().fail_at(n);
}

}  // namespace dex::serve::testing
