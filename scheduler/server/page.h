#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "scheduler/store/records.h"
#include "services/base/status.h"

namespace dex::server {

inline constexpr int kStorePage = 100;  // rows that are asked of the store at once
// A list's reply ends once it has so many bytes, whatever page_size says: half of what a message
// may have (rpc/limits.h), and no item has as much as the other half.
inline constexpr size_t kListBytes = 2 << 20;
inline constexpr size_t kPieceBytes = 256 << 10;  // of a streamed download

// page_size of a list: 0 → `standard`; outside 1–1000 → VALUE_OUT_OF_RANGE.
base::Result<int> page_size(int32_t asked, int standard = 20);

// The place behind a row, as clients carry it around. Opaque to them.
std::string page_token(int64_t created_ms, const std::string& id);
// The way back; empty → from the start. INVALID_CURSOR for anything that page_token never made.
base::Result<store::Cursor> parse_page_token(const std::string& token);
// Where a list goes on: behind `token`, or behind the item whose id is `after`. `created_ms` looks
// that one up; INVALID_CURSOR when it finds none, CONFLICTING_FIELDS for both.
base::Result<store::Cursor> list_cursor(
    const std::string& token, const std::string& after,
    const std::function<base::Result<int64_t>(const std::string& id)>& created_ms);

}  // namespace dex::server
