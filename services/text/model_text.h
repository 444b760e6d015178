#pragma once

#include <filesystem>
#include <memory>

#include "services/base/status.h"
#include "services/text/chat_template.h"
#include "services/text/tokenizer.h"

namespace dex::text {

// What turns the rows of one model into ids: trainer, previews and offline checks load it here, so
// that all of them see the same. Either may be null: a model may have no template, and one without
// a tokenizer reads rows of ids.
struct ModelText {
  std::unique_ptr<Tokenizer> tokenizer;
  std::unique_ptr<ChatTemplate> chat_template;

  // Of a model's folder. A tokenizer that is there and can't be used is an error; without a usable
  // template the model has none, and the encoder says so of each chat. Blocks on the disk.
  static base::Result<ModelText> load(const std::filesystem::path& folder);
};

}  // namespace dex::text
