#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <variant>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/server/job_events.h"
#include "scheduler/server/waiters.h"
#include "scheduler/store/job_repository.h"
#include "services/base/status.h"

namespace dex::server {

// What a watch tells: an event, from the job's log or as it is shown, or the job as it is now.
struct JobNews {
  std::string job;  // its id
  std::variant<store::LogEntry, v1::FineTuningEvent, store::JobRecord> news;
};

// Follows the logs of watched jobs of every kind for all clients of this replica: one read of the
// store for a hundred of them, at each change that this replica made and every 250 ms for those
// that others made (jobs.md §8). Thread-safe.
class JobWatches {
 public:
  // The way to one client. Thread-safe, outlives nothing: kept until the watch ends.
  class Client {
   public:
    virtual ~Client() = default;
    // Waits while the client is slow, within bounds; for what lies in the store already. False:
    // gone.
    virtual bool write(JobNews news) = 0;
    // Never waits; a client too slow is cut off. False: gone.
    virtual bool push(JobNews news) = 0;
    virtual void finish(const base::Status& status) = 0;
    [[nodiscard]] virtual bool gone() const = 0;
  };

  JobWatches(store::JobRepository& jobs, JobEvents& events, Waiters& waiters)  // outlive this
      : jobs_(jobs), events_(events), waiters_(waiters) {}

  // Sends a snapshot, then the stored events with sequence > after, then follows. Ends the client
  // OK after the last event, or with RESOURCE_NOT_FOUND. Returns when the stored part is sent; call
  // it on a thread that may wait. `last` is kept at the last sequence sent, for heartbeats.
  void watch(const std::string& tenant, const std::string& id, int64_t after,
             std::shared_ptr<Client> client, std::shared_ptr<std::atomic<int64_t>> last);

  // Something changed in a job's log; whoever watches it wants to know now.
  void wake() { waiters_.wake(); }

 private:
  struct Watch {
    std::string tenant, id;
    int64_t after = 0;
    std::shared_ptr<Client> client;
    std::shared_ptr<std::atomic<int64_t>> last;
    v1::JobState shown = v1::JOB_STATE_UNSPECIFIED;  // of the last snapshot
  };

  bool look();  // for all watches; true when there are none
  // Ends those of jobs that are there no more: a deleted log has no last event, and no news.
  void end_deleted(std::vector<Watch>& watches,
                   const std::vector<store::JobRepository::LogPosition>& positions);
  // Sends a job's news to those of `watches` that follow it, and takes out the ones that have
  // ended.
  void tell(std::vector<Watch>& watches, const std::string& id,
            const std::vector<store::LogEntry>& entries);
  // Sends what is new in `entries`; `job` is read when the state may have changed. True: the watch
  // has ended.
  bool advance(Watch& watch, const std::vector<store::LogEntry>& entries,
               const base::Result<store::JobRecord>& job);

  store::JobRepository& jobs_;
  JobEvents& events_;
  Waiters& waiters_;
  std::mutex mutex_;
  std::vector<Watch> watches_;  // guarded by mutex_
  bool looking_ = false;        // guarded by mutex_: waiters_ has our look
  int64_t looks_ = 0;           // that have been; look()'s own
};

}  // namespace dex::server
