#pragma once

namespace dex::rpc {

// jobs.md §9 and api.md §1; the public values are also in GetServerCapabilities.
inline constexpr int kLargestMessageBytes = 4 << 20;
inline constexpr int kLargestMetadataBytes = 16 << 10;
inline constexpr int kPublicStreams = 128;      // open calls on one client connection
inline constexpr int kInternalStreams = 16384;  // a gateway carries all its clients' calls on one
inline constexpr int kShortestPingMs = 20'000;  // pings more often than this end the connection

}  // namespace dex::rpc
