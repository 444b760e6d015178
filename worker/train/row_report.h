#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dex::train {

// Where a held-out row, or a piece of one, comes from.
struct HeldOutRow {
  int64_t line = 0;  // in its file
  std::string tag, language;
  int64_t tokens = 0;
};

// Σ w·CE in nats and Σ w of one of them.
struct RowLoss {
  double loss = 0, weight = 0;
  [[nodiscard]] double mean() const { return weight > 0 ? loss / weight : 0; }
};

// GroupLoss (events.proto) as JSON: the loss by tag, by language and by length in buckets of powers
// of two, each a mean over supervised tokens; of each kind the 16 groups with the most tokens. A
// kind that no row carries is left out. `rows` and `losses` have the same size.
std::string group_loss_json(int64_t step, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses);

// For people: "held-out loss at step 7 by tag: law 2, prose 1; by length: 64 2, 16 2.2"; of each
// kind the four largest groups.
std::string group_loss_text(int64_t step, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses);

// Rows by falling loss, at most `count`, those that are no number first; indices.
std::vector<size_t> worst_rows(std::span<const RowLoss> losses, size_t count = 20);

// WorstRows (events.proto) as JSON. `file`: the field of the spec that names their file.
std::string worst_rows_json(int64_t step, const std::string& file, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses);
// For people: "highest held-out losses at step 40: line 7 of validation_file 8.25, line 3 4.5"; the
// three first.
std::string worst_rows_text(int64_t step, const std::string& file, std::span<const HeldOutRow> rows,
                            std::span<const RowLoss> losses);

}  // namespace dex::train
