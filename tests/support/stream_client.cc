// stream_client SERVER MODEL PROMPT TOKENS: one streamed generation; prints how long the longest
// pause was, and a token on average from the first one on.

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>

#include "client/cpp/client.h"

int main(int argc, char** argv) {
  if (argc != 5) {
    std::fprintf(stderr, "usage: stream_client SERVER MODEL PROMPT TOKENS\n");
    return 2;
  }
  dex::client::Client client({.server = argv[1]});
  dex::v1::GenerateRequest request;
  request.set_model(argv[2]);
  request.set_prompt(argv[3]);
  request.set_max_tokens(static_cast<uint32_t>(std::stoul(argv[4])));
  request.set_ignore_eos(true);
  request.set_return_token_ids(true);
  request.set_seed(1);

  auto last = std::chrono::steady_clock::now(), first = last;
  auto last_token = first;
  double longest = 0;
  int tokens = 0;
  const auto status =
      client.generate_stream(request, [&](const dex::v1::GenerateStreamResponse& event) {
        const auto now = std::chrono::steady_clock::now();
        longest = std::max(longest, std::chrono::duration<double>(now - last).count());
        last = now;
        if (tokens == 0) first = now;
        tokens += event.delta().token_ids_size();
        if (event.has_delta()) last_token = now;
        return true;
      });
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.to_string().c_str());
    return 1;
  }
  const double each =
      std::chrono::duration<double>(last_token - first).count() / std::max(1, tokens - 1);
  std::printf("{\"tokens\": %d, \"longest_gap_seconds\": %.3f, \"seconds_a_token\": %.6f}\n",
              tokens, longest, each);
  return 0;
}
