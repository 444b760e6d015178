#pragma once

#include <memory>
#include <string>

#include "services/base/subprocess.h"
#include "tests/support/temporary_directory.h"

namespace dex::perf {

// A dex-gateway of its own, on free ports of loopback.
class GatewayProcess {
 public:
  // Returns once it has routes. `core` ≥ 0: all its threads run on that core alone. Throws
  // std::runtime_error with what is wrong.
  GatewayProcess(const std::string& program, const std::string& scheduler, int core);

  [[nodiscard]] const std::string& grpc() const { return grpc_; }  // addresses
  [[nodiscard]] const std::string& http() const { return http_; }
  // Processor time that it has used.
  [[nodiscard]] double cpu_seconds() const;
  [[nodiscard]] double resident_mib() const;

 private:
  support::TemporaryDirectory folder_;
  std::unique_ptr<base::Subprocess> process_;
  std::string grpc_, http_;
};

}  // namespace dex::perf
