#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "deploy/standalone/child.h"
#include "deploy/standalone/redis.h"
#include "services/base/clock.h"
#include "services/base/fd.h"
#include "services/base/random.h"
#include "services/base/signals.h"
#include "services/base/status.h"

namespace dex::standalone {

struct PlatformOptions {
  std::filesystem::path data_dir;         // absolute; made when missing, mode 0700
  std::filesystem::path models_file;      // allow-list of base models
  std::filesystem::path program_dir;      // where dex-scheduler, dex-gateway, dex-worker lie
  std::string launcher;                   // this program
  std::string redis_program;              // empty: not found
  bool with_prometheus = false;           // a Prometheus of its own, last of the children
  std::string prometheus_program;         // empty: not found
  uint16_t prometheus_port = 0;           // 0: any free one
  uint16_t grpc_port = 50051;             // 0: any free one
  uint16_t http_port = 8080;              // 0: any free one
  std::string host = "127.0.0.1";         // where both doors listen; not loopback: authenticate
  bool authenticate = false;              // callers must show an API key
  std::filesystem::path web_root;         // the built dashboard; empty: none
  std::vector<std::string> cors_origins;  // of web pages that may use the HTTP door
  uint32_t ranks = 1;                     // trainers of one fine-tuning job
  uint32_t threads = 0;                   // of a trainer, of an engine; 0: all cores
  std::string serve_dtype;                // of the engine: bf16, f32, int8, int4; empty: as stored
  int64_t start_limit_ms = 180'000;       // for one process to become ready
  int64_t beat_ms = 5'000;                // of the worker; 0: what the scheduler tells it
  int64_t stop_grace_ms = 300'000;        // for a trainer's last checkpoint
};

// The whole platform on one machine (architecture.md §1, §8): Redis, scheduler, gateway, worker
// and, where it is asked for, Prometheus as children, in this order, each once the one before is
// ready. Not thread-safe.
class Platform {
 public:
  Platform(PlatformOptions options, const base::StopSignals& signals, const base::Clock& clock,
           base::RandomSource& random);

  // Blocks until a stop signal (OK), or until a process did not become ready (why). In both cases
  // nothing is left running when it returns.
  base::Status run();

 private:
  using Addresses = std::map<std::string, std::string>;  // "grpc" → "127.0.0.1:50051"

  base::Status lock();
  base::Status start_all();
  base::Status start_redis();
  base::Status start_prometheus();
  base::Status start_process(const std::string& name,
                             std::function<std::vector<std::string>()> args, int64_t stop_grace_ms);
  base::Status wait_until(Child& child, const std::function<base::Status()>& ready);
  base::Result<Addresses> read_addresses(const std::string& name) const;
  base::Status check_programs() const;
  base::Status write_monitoring() const;
  base::Status publish() const;
  void watch();
  void explain_end(const Child& child) const;
  void stop_all();

  [[nodiscard]] std::filesystem::path run_file(const std::string& name) const;
  // The address given at the first start, so that a restarted process is found where it was.
  [[nodiscard]] std::string inner(const std::string& name) const;
  [[nodiscard]] std::string address(const std::string& name, const std::string& key,
                                    const std::string& first) const;
  std::vector<std::string> scheduler_args() const;
  std::vector<std::string> gateway_args() const;
  std::vector<std::string> worker_args() const;

  const PlatformOptions options_;
  const base::StopSignals& signals_;
  const base::Clock& clock_;
  base::RandomSource& random_;
  base::Fd lock_;
  RedisSetup redis_;
  std::filesystem::path admin_key_;               // empty: nobody is asked for a key
  std::vector<std::unique_ptr<Child>> children_;  // in the order of their start
  std::map<std::string, Addresses> addresses_;    // by process
  std::string prometheus_;                        // its address once it is ready
};

}  // namespace dex::standalone
