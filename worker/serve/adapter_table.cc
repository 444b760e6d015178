#include "worker/serve/adapter_table.h"

#include <stdexcept>
#include <utility>

namespace dex::serve {

struct AdapterTable::Held {
  Held(std::shared_ptr<const ServingAdapter> adapter, std::shared_ptr<Ledger> ledger)
      : adapter(std::move(adapter)), ledger(std::move(ledger)) {}
  ~Held() {
    {
      const std::lock_guard lock(ledger->mutex);
      ledger->bytes -= adapter->bytes;
    }
    adapter.reset();
    if (gone) gone();
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  std::shared_ptr<const ServingAdapter> adapter;
  std::shared_ptr<Ledger> ledger;
  std::function<void()> gone;
};

AdapterTable::AdapterTable(int64_t max_bytes) : max_bytes_(max_bytes) {}

void AdapterTable::put(std::shared_ptr<const ServingAdapter> adapter) {
  const std::string id = adapter->id;
  {
    const std::lock_guard lock(ledger_->mutex);
    if (ledger_->bytes + adapter->bytes > max_bytes_) {
      throw std::runtime_error("[adapter_table] no room for " + id + ": it takes " +
                               std::to_string(adapter->bytes) + " bytes, " +
                               std::to_string(max_bytes_ - ledger_->bytes) + " of " +
                               std::to_string(max_bytes_) + " are free");
    }
    ledger_->bytes += adapter->bytes;
  }
  auto held = std::make_shared<Held>(std::move(adapter), ledger_);
  {
    const std::lock_guard lock(mutex_);
    adapters_[id].swap(held);
  }  // the one it replaced is let go outside the lock
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

std::shared_ptr<const ServingAdapter> AdapterTable::find(const std::string& id) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(id);
  if (found == adapters_.end()) return nullptr;
  // Shares the ownership of Held, so that its end is the end of the last request.
  return {found->second, found->second->adapter.get()};
}

int64_t AdapterTable::bytes() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->bytes;
}

}  // namespace dex::serve
