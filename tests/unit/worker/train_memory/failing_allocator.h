#pragma once

#include <ATen/ATen.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <cstdint>

namespace dex::train::testing {

// LibTorch's allocator, of which one allocation fails in LibTorch's own words when it is told to.
// Installed for the whole process at first use, and never taken away: tensors may outlive any
// scope.
class FailingAllocator final : public c10::Allocator {
 public:
  static FailingAllocator& installed() {
    static FailingAllocator* allocator = [] {
      auto* made = new FailingAllocator(c10::GetCPUAllocator());
      c10::SetCPUAllocator(made);
      return made;
    }();
    return *allocator;
  }

  // The n-th allocation from now on fails, once; 0: none does.
  void fail_at(int64_t n) { left_ = n; }
  // Whether an allocation has failed since fail_at().
  [[nodiscard]] bool failed() const { return left_ == kFailed; }

  c10::DataPtr allocate(size_t bytes) override {
    if (left_ > 0 && left_.fetch_sub(1) == 1) {
      left_ = kFailed;
      TORCH_CHECK(false, "DefaultCPUAllocator: not enough memory: you tried to allocate ", bytes,
                  " bytes.");
    }
    return real_->allocate(bytes);
  }
  c10::DeleterFnPtr raw_deleter() const override { return real_->raw_deleter(); }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

 private:
  static constexpr int64_t kFailed = -1;

  explicit FailingAllocator(c10::Allocator* real) : real_(real) {}

  c10::Allocator* real_;
  std::atomic<int64_t> left_ = 0;
};

}  // namespace dex::train::testing
