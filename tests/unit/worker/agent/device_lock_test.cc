#include "worker/agent/device_lock.h"

#include <gtest/gtest.h>

#include "worker/agent/identity.h"

namespace dex::agent {
namespace {

TEST(DeviceLockTest, SlotsOfACpuHaveOneEachBelowTheDataDirectory) {
  const auto cpu = cpu_device("w1");
  EXPECT_EQ(device_lock_file(cpu, 0, "/data", "").string(), "/data/locks/dex-cpu-w1-0.lock");
  EXPECT_EQ(device_lock_file(cpu, 3, "/data", "").string(), "/data/locks/dex-cpu-w1-3.lock");
  EXPECT_EQ(device_lock_file(cpu, 0, "/data", "/locks").string(), "/locks/dex-cpu-w1-0.lock");
}

TEST(DeviceLockTest, AGpuHasOneForTheMachineWhoeverUsesIt) {
  iv1::Device gpu;
  gpu.set_kind("NVIDIA H200");
  gpu.set_uuid("GPU-0a1b");
  EXPECT_EQ(device_lock_file(gpu, 0, "/data", "").string(), "/run/lock/dex-gpu-GPU-0a1b.lock");
  EXPECT_EQ(device_lock_file(gpu, 1, "/other", "").string(), "/run/lock/dex-gpu-GPU-0a1b.lock");
  EXPECT_EQ(device_lock_file(gpu, 1, "/other", "/locks").string(), "/locks/dex-gpu-GPU-0a1b.lock");
}

}  // namespace
}  // namespace dex::agent
