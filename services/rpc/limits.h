#pragma once

namespace dex::rpc {

// jobs.md §9 and api.md §1; the public values are also in GetServerCapabilities.
inline constexpr int kLargestMessageBytes = 4 << 20;
inline constexpr int kLargestMetadataBytes = 16 << 10;
// Between our processes there is more room: what a client may just send, with what a gateway adds.
// An overrun can close the whole connection, and a gateway carries all its clients' calls on one.
inline constexpr int kInternalMetadataBytes = 64 << 10;
// An error's message and details together; gRPC clients take 8 KiB of trailing metadata by default.
inline constexpr int kLargestErrorBytes = 4 << 10;
inline constexpr int kLongestErrorMessage = 1000;  // bytes
inline constexpr int kPublicStreams = 128;         // open calls on one client connection
inline constexpr int kInternalStreams = 16384;  // a gateway carries all its clients' calls on one
inline constexpr int kShortestPingMs = 20'000;  // pings more often than this end the connection

}  // namespace dex::rpc
