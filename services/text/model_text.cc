#include "services/text/model_text.h"

namespace dex::text {

base::Result<ModelText> ModelText::load(const std::filesystem::path& folder) {
  ModelText model;
  std::error_code error;
  if (!std::filesystem::exists(folder / "tokenizer.json", error)) return model;
  DEX_ASSIGN_OR_RETURN(model.tokenizer, Tokenizer::load(folder));
  auto chat_template = ChatTemplate::load(folder);
  if (chat_template.ok()) model.chat_template = std::move(chat_template).value();
  return model;
}

}  // namespace dex::text
