#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <stop_token>
#include <utility>

namespace dex::base {

// First in, first out, at most `capacity` items. Closed: no more pushes; what is inside can still
// be popped. Thread-safe; any number of producers and consumers.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; then `item` is untouched.
  bool try_push(T&& item) {
    {
      const std::lock_guard lock(mutex_);
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    readable_.notify_one();
    return true;
  }
  bool try_push(const T& item) { return try_push(T(item)); }

  // Waits for room, at most timeout_ms and until stop. False when there was none, or closed.
  bool push(T item, int64_t timeout_ms, std::stop_token stop = {}) {
    {
      std::unique_lock lock(mutex_);
      writable_.wait_for(lock, stop, std::chrono::milliseconds(timeout_ms),
                         [&] { return closed_ || items_.size() < capacity_; });
      if (closed_ || items_.size() >= capacity_) return false;
      items_.push_back(std::move(item));
    }
    readable_.notify_one();
    return true;
  }

  // Waits for an item, at most timeout_ms and until stop. nullopt: none came, or closed and empty.
  std::optional<T> pop(int64_t timeout_ms, std::stop_token stop = {}) {
    std::optional<T> item;
    {
      std::unique_lock lock(mutex_);
      readable_.wait_for(lock, stop, std::chrono::milliseconds(timeout_ms),
                         [&] { return closed_ || !items_.empty(); });
      if (items_.empty()) return std::nullopt;
      item.emplace(std::move(items_.front()));
      items_.pop_front();
    }
    writable_.notify_one();
    return item;
  }

  // Wakes everybody.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    readable_.notify_all();
    writable_.notify_all();
  }

  [[nodiscard]] bool closed() const {
    const std::lock_guard lock(mutex_);
    return closed_;
  }
  [[nodiscard]] size_t size() const {
    const std::lock_guard lock(mutex_);
    return items_.size();
  }
  [[nodiscard]] size_t capacity() const { return capacity_; }

 private:
  const size_t capacity_;
  mutable std::mutex mutex_;
  std::condition_variable_any readable_;
  std::condition_variable_any writable_;
  std::deque<T> items_;
  bool closed_ = false;
};

}  // namespace dex::base
