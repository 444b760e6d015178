#pragma once

#include <google/protobuf/message.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
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
  // As it is sent, kept by the first client that sends it: all of a job send the same message.
  std::shared_ptr<const google::protobuf::Message> shown;
};

// Follows the logs of watched jobs of every kind for all clients of this replica: one read of the
// store for a hundred of them, at each change that this replica made and every 250 ms for those
// that others made (jobs.md §8). No thread ever waits for a client, and what thousands are told of
// one job is made once. Thread-safe.
class JobWatches {
 public:
  // The way to one client. Thread-safe, outlives nothing: kept until the watch ends.
  class Client {
   public:
    virtual ~Client() = default;
    // Never waits; a client too slow is cut off. False: gone.
    virtual bool push(JobNews& news) = 0;
    // How much of what lies stored may be pushed now, with room left for news; 0 also when gone.
    [[nodiscard]] virtual size_t room() = 0;
    // Calls `then` once, on some thread, when there is room again; never, when the client is gone
    // or takes nothing for too long. `then` may hold this client.
    virtual void when_room(std::function<void()> then) = 0;
    virtual void finish(const base::Status& status) = 0;
    [[nodiscard]] virtual bool gone() const = 0;
  };

  JobWatches(store::JobRepository& jobs, JobEvents& events, Waiters& waiters)  // outlive this
      : jobs_(jobs), events_(events), waiters_(waiters) {}

  // Sends a snapshot, then the stored events with sequence > after, then follows. Ends the client
  // OK after the last event, or with RESOURCE_NOT_FOUND. Reads the store, but does not wait for the
  // client: a slow one gets the rest when it has room. `last` is kept at the last sequence sent,
  // for heartbeats.
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
    // As the job was last looked at for this watch: its public state, its last event, whether
    // nothing comes after that.
    v1::JobState shown = v1::JOB_STATE_UNSPECIFIED;
    int64_t sequence = 0;
    bool terminal = false;
    bool ended = false;  // nothing more is to be told
  };
  struct Told;

  // Tells the watch what the job is now. False: its client is gone.
  static bool show(Watch& watch, const store::JobRecord& record);
  void send_stored(Watch watch);  // as much as its client has room for, then the rest
  void follow(Watch watch);       // from where the stored part has ended
  bool look();                    // for all watches; true when there are none
  // The watches of as many jobs as one read takes, the first of `sorted`; their positions.
  static std::span<Watch> next_jobs(std::span<Watch> sorted,
                                    std::vector<store::JobRepository::LogPosition>& positions);
  // Ends those of jobs that are there no more: a deleted log has no last event, and no news.
  void end_deleted(std::span<Watch> watches,
                   const std::vector<store::JobRepository::LogPosition>& positions);
  // Sends a job's news to all who watch it.
  void tell(std::span<Watch> watches, const std::vector<store::LogEntry>& entries);
  static void advance(Watch& watch, Told& told);

  store::JobRepository& jobs_;
  JobEvents& events_;
  Waiters& waiters_;
  std::mutex mutex_;
  std::vector<Watch> watches_;  // guarded by mutex_
  bool looking_ = false;        // guarded by mutex_: waiters_ has our look
  int64_t looks_ = 0;           // that have been; look()'s own
};

}  // namespace dex::server
