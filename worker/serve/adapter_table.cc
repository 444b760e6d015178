#include "worker/serve/adapter_table.h"

#include <utility>

namespace dex::serve {

struct AdapterTable::Held {
  Held(std::shared_ptr<const ServingAdapter> adapter, std::shared_ptr<Ledger> ledger)
      : adapter(std::move(adapter)), ledger(std::move(ledger)) {}
  ~Held() {
    {
      const std::lock_guard lock(ledger->mutex);
      ledger->bytes -= adapter->bytes + (apart ? apart->bytes : 0);
    }
    apart.reset();
    adapter.reset();
    if (gone) gone();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::shared_ptr<const ServingAdapter> adapter;
  std::mutex apart_mutex;
  std::shared_ptr<const ServingAdapter> apart;  // null: nobody has asked for it
  // That it would take; 0: not known. Of the thread that calls make_apart.
  int64_t apart_bytes = 0;
  std::shared_ptr<Ledger> ledger;
  std::function<void()> gone;
};

AdapterTable::AdapterTable(int64_t max_bytes) : max_bytes_(max_bytes) {}

void AdapterTable::put(std::shared_ptr<const ServingAdapter> adapter) {
  const std::string id = adapter->id;
  reserve(id, adapter->bytes);
  auto held = std::make_shared<Held>(std::move(adapter), ledger_);
  {
    const std::lock_guard lock(mutex_);
    adapters_[id].swap(held);
  }  // the one it replaced is let go outside the lock
}

void AdapterTable::reserve(const std::string& id, int64_t bytes) {
  const std::lock_guard lock(ledger_->mutex);
  require_room(id, bytes);
  ledger_->bytes += bytes;
}

void AdapterTable::require_room(const std::string& id, int64_t bytes) const {
  if (ledger_->bytes + bytes <= max_bytes_) return;
  if (bytes > max_bytes_) {  // nothing that goes would help
    throw std::runtime_error("[adapter_table] " + id + " takes " + std::to_string(bytes) +
                             " bytes, more than the " + std::to_string(max_bytes_) +
                             " that all adapters may have");
  }
  throw NoRoom("[adapter_table] no room for " + id + ": it takes " + std::to_string(bytes) +
               " bytes, " + std::to_string(max_bytes_ - ledger_->bytes) + " of " +
               std::to_string(max_bytes_) + " are free");
}

bool AdapterTable::remove(const std::string& id, std::function<void()> gone) {
  std::shared_ptr<Held> held;
  {
    const std::lock_guard lock(mutex_);
    const auto found = adapters_.find(id);
    if (found == adapters_.end()) return false;
    held = std::move(found->second);
    adapters_.erase(found);
    held->gone = std::move(gone);  // under the lock: from here on nobody can find it
  }
  return true;
}

std::shared_ptr<AdapterTable::Held> AdapterTable::look_up(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(id);
  return found == adapters_.end() ? nullptr : found->second;
}

std::shared_ptr<const ServingAdapter> AdapterTable::find(const std::string& id) const {
  auto held = look_up(id);
  if (held == nullptr) return nullptr;
  // Shares the ownership of Held, so that its end is the end of the last request.
  const ServingAdapter* adapter = held->adapter.get();
  return {std::move(held), adapter};
}

std::shared_ptr<const ServingAdapter> AdapterTable::find_apart(const std::string& id) const {
  auto held = look_up(id);
  if (held == nullptr) return nullptr;
  const ServingAdapter* adapter = held->adapter.get();
  if (adapter->is_folded()) {
    const std::lock_guard lock(held->apart_mutex);
    adapter = held->apart.get();
  }
  if (adapter == nullptr) return nullptr;
  return {std::move(held), adapter};
}

bool AdapterTable::make_apart(const std::string& id, const Make& make) {
  if (find_apart(id) != nullptr) return true;
  const auto held = look_up(id);
  if (held == nullptr) return false;
  const std::string what = id + " with its branch apart";
  if (held->apart_bytes > 0) {
    // It was refused before: nothing is read from the disk again only to be refused once more.
    const std::lock_guard lock(ledger_->mutex);
    require_room(what, held->apart_bytes);
  }
  auto apart = make(held->adapter);
  held->apart_bytes = apart->bytes;
  reserve(what, apart->bytes);
  const std::lock_guard lock(held->apart_mutex);
  held->apart = std::move(apart);
  return true;
}

int64_t AdapterTable::bytes() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->bytes;
}

}  // namespace dex::serve
