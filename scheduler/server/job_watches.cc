#include "scheduler/server/job_watches.h"

#include <algorithm>
#include <map>

#include "scheduler/core/public_state.h"
#include "scheduler/server/job_view.h"
#include "scheduler/store/refusals.h"

namespace dex::server {

namespace {

constexpr int kPage = 100;            // entries of a job in one read
constexpr size_t kJobsARead = 100;    // bounds what one reply of the store may hold
constexpr int64_t kLooksACheck = 20;  // a few seconds, between two looks for deleted jobs

v1::JobState shown_state(const store::JobRecord& record) {
  v1::Progress progress;
  if (!progress.ParseFromString(record.progress)) progress.Clear();
  return public_state(record, progress);
}

}  // namespace

void JobWatches::watch(const std::string& tenant, const std::string& id, int64_t after,
                       std::shared_ptr<Client> client, std::shared_ptr<std::atomic<int64_t>> last) {
  auto record = jobs_.get(tenant, id);
  if (!record.ok()) return client->finish(record.status());
  Watch watch{tenant, id, after, client, std::move(last), shown_state(*record)};
  if (!client->write({id, *record})) return;

  while (true) {
    const auto events = events_.read(tenant, id, watch.after, kPage);
    if (events.status().code() == base::Code::kDataLoss) return client->finish(events.status());
    if (!events.ok()) break;  // the store is away just now: the first look goes on from here
    for (const auto& event : *events) {
      if (!client->write({id, event})) return;
      watch.after = event.sequence();
      watch.last->store(event.sequence());
    }
    if (events->size() < kPage) break;
  }
  if (watch.after > record->sequence) {  // it moved while its log was sent
    record = jobs_.get(tenant, id);
    if (!record.ok()) return client->finish(record.status());
    if (shown_state(*record) != watch.shown) {
      watch.shown = shown_state(*record);
      if (!client->write({id, *record})) return;
    }
  }
  const bool told = watch.after >= record->sequence;  // all that there will ever be
  if (record->terminal() && told) return client->finish({});

  const std::lock_guard lock(mutex_);
  watches_.push_back(std::move(watch));
  if (!looking_) {
    looking_ = true;
    waiters_.add([this] { return look(); });
  } else {
    waiters_.wake();
  }
}

bool JobWatches::look() {
  std::vector<Watch> watches;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(watches_, [](const Watch& watch) { return watch.client->gone(); });
    if (watches_.empty()) {
      looking_ = false;
      return true;
    }
    watches.swap(watches_);
  }

  std::map<std::string, int64_t> oldest;  // job → the least that any of its watchers has seen
  for (const Watch& watch : watches) {
    const auto [at, fresh] = oldest.try_emplace(watch.id, watch.after);
    if (!fresh) at->second = std::min(at->second, watch.after);
  }
  std::vector<store::JobRepository::LogPosition> positions;
  bool more = false;
  const bool check = ++looks_ % kLooksACheck == 0;
  for (auto job = oldest.begin(); job != oldest.end();) {
    positions.clear();
    for (; job != oldest.end() && positions.size() < kJobsARead; ++job)
      positions.push_back({job->first, job->second});
    const auto news = jobs_.logs(positions, kPage);
    if (!news.ok()) break;  // the store is away: watches stay open and go on when it is back
    for (const auto& [id, entries] : *news) {
      more = more || entries.size() == kPage;
      tell(watches, id, entries);
    }
    if (check) end_deleted(watches, positions);
  }

  const std::lock_guard lock(mutex_);
  watches_.insert(watches_.end(), std::make_move_iterator(watches.begin()),
                  std::make_move_iterator(watches.end()));
  if (more) waiters_.wake();
  return false;
}

void JobWatches::end_deleted(std::vector<Watch>& watches,
                             const std::vector<store::JobRepository::LogPosition>& positions) {
  const auto all = jobs_.exist(positions);
  if (!all.ok() || *all) return;
  for (const auto& position : positions) {
    const auto there = jobs_.exist({position});
    if (!there.ok() || *there) continue;
    std::erase_if(watches, [&](const Watch& watch) {
      if (watch.id != position.id) return false;
      watch.client->finish(store::job_not_found(watch.id));
      return true;
    });
  }
}

void JobWatches::tell(std::vector<Watch>& watches, const std::string& id,
                      const std::vector<store::LogEntry>& entries) {
  base::Result<store::JobRecord> job = base::internal("not read yet");
  bool read = false;
  std::erase_if(watches, [&](Watch& watch) {
    if (watch.id != id) return false;
    if (!read) job = jobs_.get(watch.tenant, id);
    read = true;
    return advance(watch, entries, job);
  });
}

bool JobWatches::advance(Watch& watch, const std::vector<store::LogEntry>& entries,
                         const base::Result<store::JobRecord>& job) {
  if (!job.ok()) return false;  // events and snapshot go together: both at the next look
  if (entries.front().sequence > watch.after + 1 && job->archived > watch.after) {
    // What lies between has gone to the archive, which is read where a watch begins.
    watch.client->finish(base::unavailable(
        "WATCH_LAGGED", "the watch is behind the job's log; connect again from the last event"));
    return true;
  }
  bool last = false;
  for (const store::LogEntry& entry : entries) {
    if (entry.sequence <= watch.after) continue;
    if (!watch.client->push({watch.id, entry})) return true;
    watch.after = entry.sequence;
    watch.last->store(entry.sequence);
    last = last || is_last_event(entry.type);
  }
  const v1::JobState state = shown_state(*job);
  const bool ended = last && core::is_terminal(state);
  if (state != watch.shown || ended) {
    watch.shown = state;
    if (!watch.client->push({watch.id, *job})) return true;
  }
  if (ended) watch.client->finish({});
  return ended;
}

}  // namespace dex::server
