#pragma once

#include <filesystem>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "services/base/clock.h"
#include "services/base/fd.h"
#include "services/base/random.h"
#include "worker/agent/attempt.h"
#include "worker/agent/attempt_list.h"
#include "worker/agent/disk_gate.h"
#include "worker/agent/heartbeat.h"
#include "worker/agent/scheduler_client.h"

namespace dex::agent {

// One place on a worker that runs one attempt after the other: claims, trains, finishes. run()
// belongs to one thread that lives as long as its trainers may.
class Slot {
 public:
  struct Options {
    std::string worker_id;
    uint32_t index = 0;
    std::vector<std::string> pools;
    int64_t claim_wait_ms = 20'000;
    int64_t retry_ms = 1'000;      // after a call without answer
    int64_t farewell_ms = 10'000;  // when draining: how long the last words are repeated
    int64_t lock_wait_ms = 60'000;
    // After a job that this worker lacks something for. Schedulers of before do not know who has
    // which model and would give it back at once; a hundred times end a job (jobs.md §3).
    int64_t lacking_wait_ms = 30'000;
    // One job and no more: run() returns after it, or when none came for so long.
    bool once = false;
    int64_t once_idle_ms = 60'000;
    std::filesystem::path lock_file;
    Attempt::Options attempt;
  };

  // All references outlive this object.
  Slot(Options options, SchedulerClient& client, Heartbeat& heartbeat, AttemptList& attempts,
       DiskGate& disk, const DataPaths& paths, const std::vector<BaseModelEntry>& models,
       WorkerMetrics& metrics, const base::Clock& clock, base::RandomSource& random);

  // Until `drain`: then the running trainer writes a checkpoint and its job is given back. With
  // `once` it may return before.
  void run(const std::stop_token& drain);

 private:
  bool may_claim();
  [[nodiscard]] bool over(int64_t begun_ms) const;
  void claim(const std::stop_token& drain);
  void give_back_unheard_claim();
  void work(const iv1::ClaimedJob& job, const std::stop_token& drain);
  void deliver_events(Attempt& attempt, const std::stop_token& drain);
  void finish(Attempt& attempt, const Verdict& verdict, const std::stop_token& drain);
  std::optional<base::Fd> take_lock(const std::stop_token& drain);
  std::string new_claim_id();
  iv1::ClaimRequest claim_request(int64_t wait_ms) const;

  const Options options_;
  SchedulerClient& client_;
  Heartbeat& heartbeat_;
  AttemptList& attempts_;
  DiskGate& disk_;
  const DataPaths& paths_;
  const std::vector<BaseModelEntry>& models_;
  WorkerMetrics& metrics_;
  const base::Clock& clock_;
  base::RandomSource& random_;

  std::string claim_id_;
  bool claim_unheard_ = false;  // a claim was sent and nothing came back
  bool out_of_service_ = false;
  bool worked_ = false;  // had a job, whatever became of it
  std::string state_;
};

}  // namespace dex::agent
