// The operator's allow-list of base models, models.json.
#include "worker/agent/model_list.h"

#include "tests/fuzz/target.h"

namespace dex::fuzz {

Corpus corpus() {
  return {
      {R"({"models": [{"name": "smollm2-135m-instruct", "folder": "smollm2", "weights_sha256": "aa", "tokenizer_sha256": "bb", "chat_template_sha256": "cc"}]})",
       R"({"models": []})",
       R"({"models": [{"name": "a", "folder": "/a"}, {"name": "b", "folder": "b"}]})",
       R"({"models": [5, null, {}]})",
       // Deeper than what shows a wrong entry may go down by calls.
       R"({"models": [)" + std::string(200'000, '[') + std::string(200'000, ']') + "]}"},
      {"\"models\"", "\"name\"", "\"folder\"", "\"weights_sha256\"", "../", "\"\xFF\""}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const auto models = dex::agent::read_model_list(file_with(view(data, size), "models.json"));
  check(models.status());
  if (!models.ok()) return 0;
  taken();
  for (const auto& model : *models)
    require(dex::agent::find_model(*models, model.name) != nullptr, "each model is found");
  return 0;
}
