#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dex::train {

// The rules of the frozen-prefix cache, without its files: what an entry is called, and which
// entries go when there is no room.

// Everything beside a document's tokens that decides, to the bit, what enters a layer of a base.
// Data file, tokenizer, template, truncation and packing are not in it: they act through the tokens
// alone, for a document in a pack sees itself only, from position 0. So a row is found again in
// whatever file, pack or job it comes back.
struct PrefixKey {
  std::string base_weights_sha256;
  std::string config_sha256;  // of config.json: RoPE, eps
  int64_t layers = 0;
  std::string dtype;        // in which it is computed and kept: "float32"
  std::string computed_by;  // version, CPU, threads: others may round otherwise
};

// 64 hex digits for one document, its token ids in order.
std::string prefix_entry_name(const PrefixKey& key, std::span<const int64_t> ids);

struct PrefixEntry {
  std::string name;
  int64_t bytes = 0;
  int64_t used_ms = 0;  // Unix time when it was last written or read
};

// The entries to drop, the longest unused first, so that those that stay and `wanted` more bytes
// are at most `max_bytes`. What was used at `keep_since_ms` or later stays, even if it is too much:
// data larger than the bound is read in turn, so each entry would go just before it is asked for.
// The part that fits is worth more.
std::vector<PrefixEntry> prefix_entries_to_drop(std::vector<PrefixEntry> entries, int64_t max_bytes,
                                                int64_t wanted, int64_t keep_since_ms);

}  // namespace dex::train
