#include "scheduler/server/model_texts.h"

namespace dex::server {

base::Result<std::shared_ptr<const text::ModelText>> ModelTexts::get(const std::string& model) {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = loaded_.find(model); found != loaded_.end()) return found->second;
  }
  // Without the lock: two that come at once both load, and the first one's stays.
  DEX_ASSIGN_OR_RETURN(const auto folder, catalog_.folder(model));
  auto loaded = text::ModelText::load(folder);
  if (!loaded.ok()) return base::Status(loaded.status()).with_prefix("model '" + model + "'");
  if (loaded->tokenizer == nullptr) {
    return base::Status(base::Code::kUnimplemented, "NOT_SUPPORTED",
                        "The scheduler has no tokenizer.json of the model '" + model +
                            "', so it can't say what training sees; ask without a model, or "
                            "dexctl files validate --tokenizer DIR on a machine that has it.");
  }
  auto text = std::make_shared<const text::ModelText>(std::move(loaded).value());
  const std::lock_guard lock(mutex_);
  return loaded_.emplace(model, std::move(text)).first->second;
}

}  // namespace dex::server
