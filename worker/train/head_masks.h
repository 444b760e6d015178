#pragma once

#include <cstdint>
#include <vector>

namespace dex::train {

// The weights m_h of the heads while a job re-selects them (method.md §3.4): a newcomer's moves
// linearly from where it is to 1 over `ramp` updates, a leaver's to `floor`. A function of the
// update number, so a resumed job continues the same ramps. Plain values: stored in the checkpoint
// as they are.
class HeadMasks {
 public:
  struct Head {
    double from = 0, to = 0;  // m_h before and after the ramp
    int64_t since = 0;        // update at which the ramp began
    bool operator==(const Head&) const = default;
  };
  using Table = std::vector<std::vector<Head>>;  // [L][H]

  // `selected` [L] lists of heads have m = 1 at once, the others `floor` (soft_floor, default 0).
  HeadMasks(const std::vector<std::vector<int32_t>>& selected, int32_t heads, int64_t ramp,
            double floor = 0);

  // Starts the ramps of the heads whose choice changed, at update u, from their present weight.
  void change(const std::vector<std::vector<int32_t>>& selected, int64_t u);

  std::vector<float> layer(int64_t l, int64_t u) const;  // [H], m_h in update u
  bool settled(int64_t u) const;                         // no ramp is under way
  std::vector<std::vector<int32_t>> selected() const;

  const Table& table() const { return table_; }
  void restore(Table table) { table_ = std::move(table); }  // from a checkpoint; shape must match

 private:
  double weight(const Head& head, int64_t u) const;

  Table table_;
  int64_t ramp_;
  double floor_;
};

// Whether heads are selected again before update u of N (method.md §3.4): every `every` updates,
// not at the start and not in the last N/10 + N/20 updates, so that the published masks are 0 or 1.
bool reselects_at(int64_t u, int64_t every, int64_t updates);
int64_t mask_ramp(int64_t updates);  // max(1, N/20)

}  // namespace dex::train
