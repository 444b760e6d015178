// A checkpoint's folder, which a job goes on from: MANIFEST.json, state.json, the trained values,
// the optimizer's moments. "@" and a file's name stand for its size and true hash in the manifest,
// so that what is changed in the others is read.
#include <ATen/ATen.h>

#include "services/base/clock.h"
#include "services/base/sha256.h"
#include "tests/fuzz/target.h"
#include "tests/support/content_of.h"
#include "tests/support/temporary_directory.h"
#include "worker/train/checkpoint.h"
#include "worker/train/failure.h"

namespace dex::fuzz {

namespace {

namespace fs = std::filesystem;

constexpr const char* kNames[] = {"state.json", "adapter.safetensors", "optimizer.safetensors"};

// A job of one small tensor.
struct Job {
  at::Tensor tensor = at::ones({2, 3}, at::kFloat);
  train::FlatParameters parameters{
      {{"model.layers.0.self_attn.dex.w_d", model::Group::kBranch, &tensor}}};
  train::AdamW optimizer{parameters, {}};
  train::Identity identity{.spec_sha256 = "s", .base_weights_sha256 = "b"};
};

Job& job() {
  static Job made;
  return made;
}

void replace(std::string& text, const std::string& from, const std::string& to) {
  if (const size_t at = text.find(from); at != std::string::npos) text.replace(at, from.size(), to);
}

// Of the parts, the manifest with the sizes and hashes of the others.
std::string manifest_of(const std::vector<std::string>& parts) {
  std::string manifest = parts[0];
  for (size_t i = 0; i < std::size(kNames); ++i) {
    replace(manifest, std::string("\"@size ") + kNames[i] + "\"",
            std::to_string(parts[i + 1].size()));
    replace(manifest, std::string("@hash ") + kNames[i], base::sha256_hex(parts[i + 1]));
  }
  return manifest;
}

// As the trainer writes one.
std::string written(const train::TrainState& state) {
  const support::TemporaryDirectory folder;
  const base::SystemClock clock;
  train::CheckpointStore store({.directory = folder.path(), .identity = job().identity}, clock);
  const auto saved = store.save(state, job().parameters, job().optimizer, {}, false);
  std::vector<std::string> parts = {support::content_of(saved.path / "MANIFEST.json")};
  for (const char* name : kNames) parts.push_back(support::content_of(saved.path / name));
  for (size_t i = 0; i < std::size(kNames); ++i) {
    replace(parts[0], base::sha256_hex(parts[i + 1]), std::string("@hash ") + kNames[i]);
    // Sizes may be equal: each in the entry of its own name, whose keys are in alphabetical order.
    const size_t entry = parts[0].find(std::string("\"") + kNames[i] + "\"");
    const size_t size = parts[0].find("\"size\": ", entry) + 8;
    const size_t end = parts[0].find_first_not_of("0123456789", size);
    parts[0].replace(size, end - size, std::string("\"@size ") + kNames[i] + "\"");
  }
  return joined(parts);
}

}  // namespace

Corpus corpus() {
  train::TrainState state;
  state.step = 12;
  state.base_loss = 2.5;
  state.valid_losses = {2.5, 2.25};
  state.grad_norms = {1, 0.5};
  state.masks = {{{0, 1, 3}}};
  state.watchdog.recent = {2, 1.5};
  state.advised = {"weak"};
  Corpus made;
  made.seeds = {written(train::TrainState{}), written(state)};
  // A number that a cast would make something else of.
  std::vector<std::string> huge = parts_of(made.seeds[1]);
  replace(huge[1], "\"step\": 12", "\"step\": 1e300");
  made.seeds.push_back(joined(huge));
  made.words = {"@hash state.json", "\"@size state.json\"",  "\n=====\n",
                "\"files\"",        "\"identity\"",          "\"step\"",
                "\"masks\"",        "\"grad_norms\"",        "\"early_stopping\"",
                "\"selection\"",    "\"watchdog\"",          "\"best_masks\"",
                "\"../x\"",         "\"optimizer_updates\"", "null"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  auto parts = parts_of(view(data, size));
  parts.resize(4);
  fs::path folder;
  for (size_t i = 0; i < std::size(kNames); ++i)
    folder = file_with(parts[i + 1], std::string("step-12/") + kNames[i]).parent_path();
  file_with(manifest_of(parts), "step-12/MANIFEST.json");
  parse([&] {
    const auto loaded = dex::train::load_checkpoint(folder, "", job().identity, job().parameters);
    require(loaded.values.numel() == job().parameters.values().numel(),
            "values of the job's shape");
    // What was read can be written, and then is the same.
    const std::string text = dex::train::to_json(loaded.state);
    require(dex::train::to_json(dex::train::state_from_json(text)) == text, "the state as it was");
  });
  parse([&] { (void)dex::train::state_from_json(parts[1]); });
  return 0;
}
