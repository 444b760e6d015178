// An adapter's folder: checksums.json, adapter_config.json, the tensors, provenance.json. "@" and a
// file's name stand for its true hash, so that what is changed in the others is read.
#include "services/base/sha256.h"
#include "tests/fuzz/target.h"
#include "tests/support/content_of.h"
#include "tests/support/paths.h"
#include "worker/model/adapter.h"

namespace dex::fuzz {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"adapter_config.json", "adapter_model.safetensors",
                                  "provenance.json"};

const model::Config& base() {
  static const model::Config config =
      model::load_config(support::source_dir() / "tests/data/train/model");
  return config;
}

std::string with_hashes(std::string sums, const std::vector<std::string>& parts) {
  for (size_t i = 0; i < std::size(kNames); ++i) {
    const std::string mark = std::string("@") + kNames[i];
    if (const size_t at = sums.find(mark); at != std::string::npos)
      sums.replace(at, mark.size(), base::sha256_hex(parts[i + 1]));
  }
  return sums;
}

std::string sums_of(bool provenance) {
  std::string sums = "{";
  for (size_t i = 0; i < (provenance ? 3 : 2); ++i)
    sums += std::string(i > 0 ? ", " : "") + "\"" + kNames[i] + "\": \"@" + kNames[i] + "\"";
  return sums + "}";
}

}  // namespace

Corpus corpus() {
  Corpus made;
  const fs::path data = support::source_dir() / "tests/data/lora";
  for (const char* name : {"attention", "one_layer_bf16", "patterns"}) {
    const std::string config = support::content_of(data / name / kNames[0]),
                      tensors = support::content_of(data / name / kNames[1]);
    made.seeds.push_back(joined({"", config, tensors, ""}));  // as PEFT leaves it
    made.seeds.push_back(joined({sums_of(true), config, tensors,
                                 R"({"base_weights_sha256": ")" + std::string(64, 'a') + R"("})"}));
  }
  made.seeds.push_back(joined({sums_of(false), "{\"peft_type\": \"DEX\"}", "", ""}));
  made.seeds.push_back(joined({R"({"config.json": "x"})", "{}", "", ""}));
  made.words = {"@adapter_config.json",
                "@adapter_model.safetensors",
                "@provenance.json",
                "\"config.json\"",
                "\n=====\n",
                "\"r\": 4096",
                "\"target_modules\"",
                "null"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  auto parts = parts_of(view(data, size));
  parts.resize(4);
  fs::path folder;
  for (size_t i = 0; i < std::size(kNames); ++i)
    folder = file_with(parts[i + 1], std::string("adapter/") + kNames[i]).parent_path();
  if (parts[0].empty()) {
    fs::remove(folder / "checksums.json");
  } else {
    file_with(with_hashes(parts[0], parts), "adapter/checksums.json");
  }
  parse([&] {
    const dex::model::BaseIdentity identity{base(), std::string(64, 'a')};
    const auto adapter = dex::model::load_adapter(folder, identity, {.peft_folder = true});
    require(adapter.adaptation.layers.size() <= static_cast<size_t>(base().layers),
            "no more layers than the base has");
  });
  return 0;
}
