#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "services/base/clock.h"
#include "services/base/file_layer.h"
#include "worker/train/adamw.h"
#include "worker/train/flat_parameters.h"
#include "worker/train/train_state.h"

namespace dex::train {

// What a checkpoint belongs to; each is compared by name when a job resumes.
struct Identity {
  std::string spec_sha256, base_weights_sha256, tokenizer_sha256, chat_template_sha256,
      training_sha256, validation_sha256, start_adapter_sha256;
};

// How the update was cut, kept to tell an exact continuation from one that only rounds differently.
struct Geometry {
  int32_t micro_batch_size = 0;
  int32_t threads = 0;
  std::string gemm =
      "libtorch";     // library of products; of checkpoints of before, which had no other
  int32_t ranks = 1;  // likewise
};

// The library that a checkpoint's attempt multiplied with, to be used before anything is computed.
// Nothing where its manifest can't be read (load_checkpoint says why) or names one of later.
std::optional<std::string> checkpoint_gemm(const std::filesystem::path& directory);

struct SavedCheckpoint {
  std::filesystem::path path;
  std::string manifest_sha256;
  int64_t step = 0, bytes = 0;
  double seconds = 0;
  bool best = false;
};

// Writes `step-<n>/` below an attempt's directory (jobs.md §7): adapter.safetensors (trained values
// by name), best.safetensors (those of the best evaluation, where early stopping keeps them apart),
// optimizer.safetensors (the two moments, flat), state.json, MANIFEST.json last; synced,
// renamed, then read back from the disk and compared hash by hash. Never writes over a checkpoint
// that is there: where the name is taken, `step-<n>-2` is the next. Keeps the last `keep_last`, the
// best, what hold() names, and whatever is younger than a minute: the agent offers a checkpoint
// with its next beat, and tells only then that it has. Blocks on the disk.
class CheckpointStore {
 public:
  struct Options {
    std::filesystem::path directory;  // the attempt's; must exist
    int32_t attempt = 1;
    int32_t keep_last = 2;
    bool keep_best = true;
    Identity identity;
    Geometry geometry;
  };
  CheckpointStore(const Options& options, const base::Clock& clock,
                  base::FileLayer& files = base::system_files());

  // Checkpoints that stay however old they are: folders. Empty, or another attempt's: none here.
  struct Held {
    std::filesystem::path acknowledged;  // the job points to it
    std::filesystem::path offered;       // the job may point to it
    std::filesystem::path way_back;      // the watchdog's
  };
  // From now on these, in place of those before.
  void hold(Held held) { held_ = std::move(held); }

  // Training goes on from an earlier step: what was saved after it lies on a way that is left. It
  // is last() no more and stays only while it is held or young. `best_step`: of the state that was
  // taken up.
  void go_back(int64_t step, int64_t best_step);

  // `best_values`, flat: the weights of the best evaluation where they are not those of
  // `parameters`; undefined: none are kept. Throws Failure disk_full or quota_exceeded; the
  // temporary is then gone and earlier checkpoints stand.
  SavedCheckpoint save(const TrainState& state, const FlatParameters& parameters,
                       const AdamW& optimizer, const at::Tensor& best_values, bool best);

  // The newest one, or null. Valid until the next save.
  const SavedCheckpoint* last() const;

 private:
  struct Kept {
    SavedCheckpoint saved;
    int64_t at_ms = 0;  // steady clock
    bool left = false;  // by go_back
  };
  void prune();
  [[nodiscard]] bool is_held(const Kept& kept) const;

  Options options_;
  const base::Clock& clock_;
  base::FileLayer& files_;
  Held held_;
  std::vector<Kept> kept_;  // oldest first
};

struct LoadedCheckpoint {
  TrainState state;
  Geometry geometry;
  at::Tensor values, first_moment, second_moment;  // flat, of FlatParameters' layout
  at::Tensor best_values;                          // likewise; undefined: none were kept apart
  int64_t optimizer_updates = 0;
};

// Reads a checkpoint and checks all of it: the manifest's hash (if not empty), every file's size
// and hash, names and shapes against `parameters`, finite values, and the identity, naming what
// differs. Throws Failure: broken files end with exit 20, files that can't be read just now and
// another tokenizer, template or start adapter with 18, another spec or base with 10, other data
// with 11.
LoadedCheckpoint load_checkpoint(const std::filesystem::path& directory,
                                 const std::string& manifest_sha256, const Identity& identity,
                                 const FlatParameters& parameters);

// Bytes that a checkpoint of these parameters takes, about; with the best weights kept apart.
int64_t checkpoint_bytes(const FlatParameters& parameters, bool keeps_best);

}  // namespace dex::train
