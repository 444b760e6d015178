#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>

#include "worker/serve/serving_model.h"

namespace dex::serve {

// The bytes of the table are used up.
class NoRoom : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The adapters that requests may name, bounded by their bytes. An adapter that is taken out stays
// in memory until the last request that uses it has ended. Thread-safe; holds its lock only for a
// look-up.
class AdapterTable {
 public:
  explicit AdapterTable(int64_t max_bytes);

  // Replaces an adapter of the same id: requests that run keep the old one. Throws NoRoom; bytes of
  // adapters that are leaving count until they are gone.
  void put(std::shared_ptr<const ServingAdapter> adapter);
  // `gone` is called once, when its last request has ended (at once if there is none), from
  // whatever thread that was. False: no such adapter; `gone` is not called.
  bool remove(const std::string& id, std::function<void()> gone = {});

  [[nodiscard]] std::shared_ptr<const ServingAdapter> find(
      const std::string& id) const;     // null: unknown
  [[nodiscard]] int64_t bytes() const;  // leaving ones included

  // The adapter with its branch apart (serving_model.h), for requests that scale λ: the adapter
  // itself where nothing is folded. Null: unknown, or not made yet.
  [[nodiscard]] std::shared_ptr<const ServingAdapter> find_apart(const std::string& id) const;
  // Makes that with `make` unless it is there; it stays as long as the adapter, and its bytes
  // count. Takes as long as `make`, holds no lock meanwhile; one thread calls it. False: unknown
  // adapter. Throws NoRoom, and what `make` throws.
  using Make = std::function<std::shared_ptr<const ServingAdapter>(
      std::shared_ptr<const ServingAdapter> folded)>;
  bool make_apart(const std::string& id, const Make& make);

 private:
  struct Held;  // an adapter and what happens when nobody needs it any more
  struct Ledger {
    std::mutex mutex;
    int64_t bytes = 0;
  };

  [[nodiscard]] std::shared_ptr<Held> look_up(const std::string& id) const;
  void reserve(const std::string& id, int64_t bytes);

  const int64_t max_bytes_;
  std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  mutable std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Held>> adapters_;
};

}  // namespace dex::serve
