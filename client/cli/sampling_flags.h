#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dex/v1/inference.pb.h"

namespace dex::cli {

// The sampling options of `generate` and `chat`; what is not given is left to the server.
struct SamplingFlags {
  std::optional<uint32_t> max_tokens, top_k;
  std::optional<double> temperature, top_p, repetition_penalty, lambda_scale;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;

  void add_to(CLI::App& verb) {
    verb.add_option("--max-tokens", max_tokens, "at most so many new tokens");
    verb.add_option("--temperature", temperature, "0 is greedy; default 1");
    verb.add_option("--top-p", top_p, "keep the likeliest tokens that make up this share");
    verb.add_option("--top-k", top_k, "keep so many of the likeliest tokens");
    verb.add_option("--repetition-penalty", repetition_penalty, "above 1: repeat less");
    verb.add_option("--lambda-scale", lambda_scale,
                    "0–1, times every λ of the adapter's branch; 0: without the branch; default 1");
    verb.add_option("--seed", seed, "same seed, same text");
    verb.add_option("--stop", stop, "end before this text (may be repeated)")
        ->allow_extra_args(false);
  }

  void apply(v1::GenerateRequest& request) const {
    if (max_tokens) request.set_max_tokens(*max_tokens);
    if (temperature) request.set_temperature(*temperature);
    if (top_p) request.set_top_p(*top_p);
    if (top_k) request.set_top_k(*top_k);
    if (repetition_penalty) request.set_repetition_penalty(*repetition_penalty);
    if (lambda_scale) request.set_dex_lambda_scale(*lambda_scale);
    if (seed) request.set_seed(*seed);
    for (const auto& text : stop) request.add_stop(text);
  }
};

}  // namespace dex::cli
