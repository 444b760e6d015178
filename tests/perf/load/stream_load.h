#pragma once

#include <string>

namespace dex::perf {

// What the clients of token streams saw.
struct Streams {
  double token_ms = 0;        // from a stream's first token to its last, a token: mean over streams
  double worst_ms = 0;        // the same of the slowest stream
  double longest_gap_ms = 0;  // between two reads of one stream
};

// `count` streams of `tokens` tokens each at the same time; all must be whole, else
// std::runtime_error. Over gRPC against a worker or a gateway, and over HTTP as server-sent events
// of /v1/completions on a connection each, all of them read by this thread.
Streams grpc_streams(const std::string& server, int count, int tokens);
Streams sse_streams(const std::string& server, int count, int tokens);

}  // namespace dex::perf
