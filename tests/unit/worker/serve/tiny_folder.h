#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

// The tiny model and an adapter of it on the disk, for tests that must not see LibTorch's headers.
namespace dex::serve::testing {

void write_tiny_model(const std::filesystem::path& folder);
void write_tiny_adapter(const std::filesystem::path& folder, const std::filesystem::path& model);
// A LoRA of q, k, v and o whose second factors are zero.
void write_idle_adapter(const std::filesystem::path& folder, const std::filesystem::path& model);
// Made for another base.
void write_foreign_adapter(const std::filesystem::path& folder);
// A DiffLlama, and the same model with unilm's attention (worker/model/unilm.h).
void write_unilm(const std::filesystem::path& diffllama, const std::filesystem::path& unilm);
// LibTorch's n-th allocation from now on fails, once; 0: none does.
void fail_allocation(int64_t n);

}  // namespace dex::serve::testing
