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
  frames.push_back(set_adapter(what, true));
  return entry;
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
    Entry& entry = same ? found->second : load(adapter, frames);
    entry.desired = true;
  }
  for (auto& [id, entry] : entries_) {
    if (!entry.desired || wanted.contains(id)) continue;
    entry.desired = false;
    frames.push_back(set_adapter(entry.what, false));
  }
  return frames;
}

AdapterBook::Frames AdapterBook::engine_started() {
  const std::lock_guard lock(mutex_);
  Frames frames;
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

void AdapterBook::reported(const iv1::EngineReport::AdapterState& state) {
  std::vector<Ready> waiters;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(state.id());
    if (found == entries_.end()) return;
    Entry& entry = found->second;
    entry.status.set_state(state.state());
    entry.status.set_error(state.error());
    entry.status.set_bytes(state.bytes());
    const bool unloaded = state.state() == dex::v1::Replica::STATE_UNSPECIFIED;
    if (state.state() != dex::v1::Replica::STATE_LOADING) waiters.swap(entry.waiters);
    if (unloaded && !entry.desired) entries_.erase(found);
  }
  base::Status status;
  if (state.state() == dex::v1::Replica::STATE_FAILED) {
    status = base::failed_precondition("ADAPTER_MISMATCH", state.id() + ": " + state.error());
  } else if (state.state() != dex::v1::Replica::STATE_LOADED) {
    status = base::unavailable("ADAPTER_LOADING", state.id() + " was unloaded");
  }
  for (const auto& ready : waiters) ready(status);
}

AdapterBook::Frames AdapterBook::want(const iv1::DesiredAdapter& adapter, Ready ready) {
  Frames frames;
  base::Status answer;
  {
    const std::lock_guard lock(mutex_);
    const auto found = entries_.find(adapter.id());
    const bool known = found != entries_.end() &&
                       (adapter.content_sha256().empty() ||
                        found->second.what.content_sha256() == adapter.content_sha256());
    if (!known && !adapter.path().empty()) {
      load(adapter, frames).waiters.push_back(std::move(ready));
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
