#pragma once

#include <filesystem>

namespace dex::support {

inline constexpr const char* kTinyModel = "tiny-random";
inline constexpr const char* kTinyDiffLlama = "tiny-diffllama";

// Writes `folder`/tiny-random, a Llama of 3 layers × 4 heads with random bf16 weights behind
// SmolLM2's own tokenizer and chat template, and `folder`/models.json, an allow-list with only this
// model; returns that file. It trains in milliseconds: for tests of the platform, where what a
// model says does not matter. The same bytes every time. Throws when `.deps/models` has no
// tokenizer.
std::filesystem::path write_tiny_model(const std::filesystem::path& folder);

// The same with `folder`/tiny-diffllama beside it, which subtracts heads in pairs: 2 layers × 4
// heads, otherwise alike.
std::filesystem::path write_tiny_models(const std::filesystem::path& folder);

}  // namespace dex::support
