#pragma once

#include "dex/v1/models.pb.h"

namespace dex::core {

// The facts of SmolLM2-135M (method.md §2.7).
inline v1::Model smollm2() {
  v1::Model model;
  model.set_name("smollm2-135m-instruct");
  model.set_parameters(134'515'008);
  model.set_layers(30);
  model.set_query_heads(9);
  model.set_kv_heads(3);
  model.set_head_dim(64);
  model.set_hidden_size(576);
  model.set_intermediate_size(1536);
  model.set_context_length(8192);
  model.set_vocab_size(49152);
  model.set_tied_embeddings(true);
  return model;
}

}  // namespace dex::core
