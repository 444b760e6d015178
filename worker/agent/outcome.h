#pragma once

#include <optional>
#include <string>

#include "dex/internal/v1/frames.pb.h"
#include "dex/internal/v1/worker.pb.h"
#include "dex/v1/events.pb.h"
#include "services/base/status.h"
#include "services/base/subprocess.h"
#include "worker/agent/supervised_process.h"

namespace dex::agent {

namespace iv1 = dex::internal::v1;

// ClaimedJob::kind of a fine-tuning job that ends after one update on its longest rows.
inline constexpr const char* kProbe = "probe";

// What an attempt was told to do, the gravest last; an order only ever gets graver.
enum class Order { kNone, kDrain, kPause, kCancel, kLost };

// TrainerResult::code of a rank that ended because another did (worker/train/failure.h).
inline constexpr const char* kRankLost = "rank_lost";

// How a rank other than 0 ended.
struct RankEnd {
  uint32_t rank = 0;
  std::optional<iv1::TrainerReport::TrainerResult> result;
  base::ExitStatus exit;
};
bool lost_another(const RankEnd& end);

// How an attempt ended, as far as the agent saw it.
struct AttemptEnd {
  std::optional<iv1::TrainerReport::TrainerResult> result;  // the trainer's last frame
  base::ExitStatus exit;
  Order order = Order::kNone;
  bool stalled = false;       // killed by us: no sign of life for too long
  SupervisedProcess process;  // that this is the end of
  // Of a stall: how long nothing was new, where it was last heard of, and what it did when it was
  // killed (activity_of()).
  int64_t silent_ms = 0;
  std::string last_heard, activity;
  std::string broken_channel;  // why the agent gave the trainer up, e.g. a malformed frame
  // A rank that ended before its time; then `exit` may be ours, since no rank goes on alone.
  std::optional<RankEnd> lost_rank;
};

// What the agent reports, or that there is nothing to report because the lease is lost.
struct Verdict {
  bool report = true;
  iv1::Outcome outcome = iv1::OUTCOME_UNSPECIFIED;
  std::string code;  // error code of api.md §3, empty where none belongs
  std::string message;
  std::string param;
  std::optional<dex::v1::OutOfMemory> out_of_memory;  // with code out_of_memory, if it is known
  bool out_of_service = false;  // the fault is this worker's, such as a broken base: claim no more
  bool lacking = false;         // the job needs what this worker never had: a model, a newer agent
};

// The table of jobs.md §6: the result frame if there is a usable one, else our own order, else the
// exit status. Of several ranks: rank 0's, unless it only ended because another did; then that
// one's. Pure.
Verdict judge(const AttemptEnd& end);

// The same for a trainer's end, where the job decides too: out of memory is final if there is no
// smaller micro-batch to try (jobs.md §6), and for a probe, which answers for one setting. Of its
// own accord a trainer pauses only a job that is to be checked and held.
Verdict judge_training(const AttemptEnd& end, const iv1::ClaimedJob& job);

// The trainer refused its checkpoint, and nobody stopped it meanwhile: another one, or none, may
// do.
bool found_checkpoint_broken(const AttemptEnd& end);

// Of an attempt that could not begin: another worker may have what is missing here, or space.
Verdict cannot_start(const base::Status& status);

// Exit codes of the trainer (jobs.md §6).
enum TrainerExit : int {
  kExitSuccess = 0,
  kExitBadConfig = 10,
  kExitBadData = 11,
  kExitNonFinite = 12,
  kExitOutOfMemory = 13,
  kExitDiskFull = 14,
  kExitQuota = 15,
  kExitStopped = 16,
  kExitBadBase = 17,
  kExitRetryable = 18,
  kExitGuard = 19,
  kExitBrokenCheckpoint = 20,
};

}  // namespace dex::agent
