#include "worker/agent/device_lock.h"

#include <string>

namespace dex::agent {

std::filesystem::path device_lock_file(const iv1::Device& device, uint32_t slot,
                                       const std::filesystem::path& data_dir,
                                       const std::filesystem::path& lock_dir) {
  const bool cpu = device.kind() == "cpu";
  std::filesystem::path folder = lock_dir;
  if (folder.empty()) folder = cpu ? data_dir / "locks" : std::filesystem::path("/run/lock");
  const std::string name =
      cpu ? device.uuid() + "-" + std::to_string(slot) : "gpu-" + device.uuid();
  return folder / ("dex-" + name + ".lock");
}

}  // namespace dex::agent
