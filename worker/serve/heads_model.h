#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <stop_token>

#include "worker/evaluate/head_measures.h"

namespace dex::serve {

// A base model and adapters of it in fp32, whose heads can be looked at: the engine's kernels never
// make what a head analysis needs. Loaded when the first document is measured, then kept: 4 bytes a
// parameter beside the engine's own copy. Computes with LibTorch's threads while the engine's rest.
// One thread.
class HeadsModel {
 public:
  HeadsModel(std::filesystem::path model, int threads);  // 0: all cores
  ~HeadsModel();
  HeadsModel(const HeadsModel&) = delete;
  HeadsModel& operator=(const HeadsModel&) = delete;

  // `adapter`: its folder; empty: the base. `after_pass`, unless it is empty, is called between the
  // passes over the document. Throws evaluate::Stopped, and std::runtime_error for a model whose
  // heads can't be measured or that does not load.
  evaluate::HeadMeasures measure(const std::filesystem::path& adapter,
                                 std::span<const int32_t> tokens,
                                 const evaluate::HeadQuestion& question,
                                 const std::stop_token& stop,
                                 const std::function<void()>& after_pass = {});

 private:
  struct Loaded;
  Loaded& loaded();

  std::filesystem::path model_;
  int threads_;
  std::unique_ptr<Loaded> loaded_;
};

}  // namespace dex::serve
