#pragma once

namespace dex::rpc {

// Metadata that a gateway adds to what it hands on; it takes these names out of what clients send.
inline constexpr const char* kTenantHeader = "dex-tenant";  // whose call this is
inline constexpr const char* kScopesHeader = "dex-scopes";  // what they may do: auth::scope_words
inline constexpr const char* kKeyHeader = "dex-key";        // id of the API key; absent: none
// Where a generation was routed (jobs.md §4): the base's name, the adapter's id and its content
// hash, the last two absent when the base itself shall answer. A worker that holds other content
// under that id refuses.
inline constexpr const char* kRoutedBaseHeader = "dex-routed-base";
inline constexpr const char* kRoutedAdapterHeader = "dex-routed-adapter";
inline constexpr const char* kRoutedAdapterHashHeader = "dex-routed-adapter-sha256";
// The adapter's directory below the shared data directory (RouteSnapshot.AdapterRoute.path), so
// that a worker that does not hold it yet can load it on first use. Without it such a worker
// answers UNAVAILABLE ADAPTER_LOADING.
inline constexpr const char* kRoutedAdapterPathHeader = "dex-routed-adapter-path";
// The alias by which the request named the adapter; absent: it named it by its id. For the reply.
inline constexpr const char* kRoutedAliasHeader = "dex-routed-alias";

}  // namespace dex::rpc
