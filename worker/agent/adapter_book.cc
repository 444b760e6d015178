#include "worker/agent/adapter_book.h"

#include <set>
#include <utility>

namespace dex::agent {

iv1::EngineCommand AdapterBook::set_adapter(const iv1::DesiredAdapter& what, bool present) {
  iv1::EngineCommand command;
  auto& frame = *command.mutable_set_adapter();
  frame.set_id(what.id());
  frame.set_path(what.path());
  frame.set_content_sha256(what.content_sha256());
  frame.set_present(present);
  return command;
}

AdapterBook::Entry& AdapterBook::load(const iv1::DesiredAdapter& what, Frames& frames) {
  Entry& entry = entries_[what.id()];
  entry.what = what;
  entry.status.set_id(what.id());
  entry.status.set_content_sha256(what.content_sha256());
  entry.status.set_state(dex::v1::Replica::STATE_LOADING);
  entry.status.clear_error();
  entry.status.clear_no_room();
  entry.roomless = false;
  // A frame for one that leaves could overtake the one that makes it leave.
  if (!entry.leaving) frames.push_back(set_adapter(what, true));
  return entry;
}

iv1::EngineCommand AdapterBook::let_go(Entry& entry) {
  entry.leaving = true;
  entry.status.set_state(dex::v1::Replica::STATE_UNSPECIFIED);
  return set_adapter(entry.what, false);
}

void AdapterBook::load_waiting(Frames& frames) {
  for (auto& [id, entry] : entries_) {
    if (entry.roomless) load(iv1::DesiredAdapter(entry.what), frames);
  }
}

bool AdapterBook::make_room(Entry& entry, Frames& frames) {
  Entry* oldest = nullptr;
  bool any_leaving = false;
  for (auto& [id, other] : entries_) {
    any_leaving = any_leaving || other.leaving;
    const bool may_leave = !other.desired && !other.leaving && &other != &entry &&
                           other.status.state() == dex::v1::Replica::STATE_LOADED && !in_use_(id);
    if (may_leave && (oldest == nullptr || other.last_used < oldest->last_used)) oldest = &other;
  }
  if (oldest == nullptr && !any_leaving) return false;
  if (!any_leaving) {  // one at a time: its bytes may be enough
    frames.push_back(let_go(*oldest));
  }
  entry.roomless = true;
  entry.status.set_state(dex::v1::Replica::STATE_LOADING);
  return true;
}

AdapterBook::Frames AdapterBook::set_desired(const std::vector<iv1::DesiredAdapter>& desired) {
  const std::lock_guard lock(mutex_);
  Frames frames;
  std::set<std::string> wanted;
  for (const auto& adapter : desired) {
    wanted.insert(adapter.id());
    const auto found = entries_.find(adapter.id());
    const bool same =
        found != entries_.end() && found->second.what.content_sha256() == adapter.content_sha256();
    // What failed on first use is tried again for whoever asks for it to stay.
    const bool again = same && !found->second.desired &&
                       found->second.status.state() == dex::v1::Replica::STATE_FAILED;
    Entry& entry = same && !again ? found->second : load(adapter, frames);
    entry.desired = true;
  }
  for (auto& [id, entry] : entries_) {
    if (!entry.desired || wanted.contains(id)) continue;
    entry.desired = false;
    if (!entry.leaving) frames.push_back(let_go(entry));
  }
  return frames;
}

AdapterBook::Frames AdapterBook::engine_started() {
  const std::lock_guard lock(mutex_);
  Frames frames;
  for (auto& [id, entry] : entries_) entry.leaving = false;
  // What was loaded on first use comes back on first use.
  std::erase_if(entries_, [](const auto& item) {
    return !item.second.desired && item.second.waiters.empty();
  });
  for (auto& [id, entry] : entries_) load(iv1::DesiredAdapter(entry.what), frames);
  return frames;
}

void AdapterBook::engine_lost() {
  std::vector<Ready> waiters;
  {
    const std::lock_guard lock(mutex_);
    for (auto& [id, entry] : entries_) {
      entry.status.set_state(dex::v1::Replica::STATE_LOADING);
      std::move(entry.waiters.begin(), entry.waiters.end(), std::back_inserter(waiters));
      entry.waiters.clear();
    }
  }
  for (const auto& ready : waiters) {
    ready(base::unavailable("ENGINE_LOST", "the engine ended while it loaded the adapter"));
  }
}

AdapterBook::Frames AdapterBook::reported(const iv1::EngineReport::AdapterState& state) {
  Frames frames;
  std::vector<Ready> waiters;
  const bool unloaded = state.state() == dex::v1::Replica::STATE_UNSPECIFIED;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(state.id());
    if (found == entries_.end()) return frames;
    Entry& entry = found->second;
    // It goes, whatever its load came to: a request would arrive behind that. Who waits gets it
    // when it is back.
    if (entry.leaving && !unloaded) return frames;
    if (unloaded && entry.leaving) {
      entry.leaving = false;
      if (entry.desired || !entry.waiters.empty()) {  // wanted again since it was told to leave
        load_waiting(frames);                         // who came before it first
        load(iv1::DesiredAdapter(entry.what), frames);
        return frames;
      }
    }
    if (state.no_room() && make_room(entry, frames)) return frames;
    entry.status.set_state(state.state());
    entry.status.set_error(state.error());
    entry.status.set_no_room(state.no_room());
    entry.status.clear_proof();
    if (state.has_proof()) *entry.status.mutable_proof() = state.proof();
    entry.status.set_bytes(state.bytes());
    // What the scheduler wants has no caller who would ask again.
    entry.roomless = state.no_room() && entry.desired;
    if (state.state() != dex::v1::Replica::STATE_LOADING) waiters.swap(entry.waiters);
    if (unloaded && !entry.desired) entries_.erase(found);
    if (unloaded) load_waiting(frames);
  }
  base::Status status;
  if (state.no_room()) {
    status = base::Status(base::Code::kResourceExhausted, "ADAPTER_SLOTS_FULL",
                          state.id() + ": " + state.error() +
                              ", and all that are there have requests or were asked for; unload "
                              "one that nobody needs");
  } else if (state.state() == dex::v1::Replica::STATE_FAILED) {
    status = base::failed_precondition("ADAPTER_MISMATCH", state.id() + ": " + state.error());
  } else if (state.state() != dex::v1::Replica::STATE_LOADED) {
    status = base::unavailable("ADAPTER_LOADING", state.id() + " was unloaded");
  }
  for (const auto& ready : waiters) ready(status);
  return frames;
}

AdapterBook::Frames AdapterBook::request_ended() {
  const std::lock_guard lock(mutex_);
  Frames frames;
  for (auto& [id, entry] : entries_) {
    const bool waits = entry.roomless && entry.status.state() == dex::v1::Replica::STATE_FAILED;
    if (waits) (void)make_room(entry, frames);
  }
  return frames;
}

AdapterBook::Frames AdapterBook::want(const iv1::DesiredAdapter& adapter, Ready ready) {
  Frames frames;
  base::Status answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(adapter.id());
    if (found != entries_.end()) found->second.last_used = ++uses_;
    const bool known = found != entries_.end() &&
                       (adapter.content_sha256().empty() ||
                        found->second.what.content_sha256() == adapter.content_sha256());
    if (!known && !adapter.path().empty()) {
      Entry& entry = load(adapter, frames);
      entry.last_used = ++uses_;
      entry.waiters.push_back(std::move(ready));
      return frames;
    }
    if (known && found->second.status.state() != dex::v1::Replica::STATE_LOADED) {
      Entry& entry = found->second;
      // A failed one gets another try: its files may have been repaired.
      if (entry.status.state() != dex::v1::Replica::STATE_LOADING) {
        load(iv1::DesiredAdapter(entry.what), frames);
      }
      entry.waiters.push_back(std::move(ready));
      return frames;
    }
    if (!known) {
      answer = base::unavailable(
          "ADAPTER_LOADING", adapter.id() + " with that content is not known to this worker yet");
    }
  }
  ready(answer);
  return frames;
}

std::vector<iv1::AdapterStatus> AdapterBook::status() const {
  const std::lock_guard lock(mutex_);
  std::vector<iv1::AdapterStatus> result;
  for (const auto& [id, entry] : entries_) result.push_back(entry.status);
  return result;
}

}  // namespace dex::agent
