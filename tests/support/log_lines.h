#pragma once

#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace dex::support {

// What this process logs while it lives, as plain messages. Thread-safe; one at a time.
class LogLines {
 public:
  LogLines() : sink_(std::make_shared<Sink>()), before_(spdlog::default_logger()) {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", sink_));
  }
  ~LogLines() { spdlog::set_default_logger(before_); }
  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  // The lines so far that contain `text`.
  [[nodiscard]] std::vector<std::string> with(const std::string& text) const {
    return sink_->with(text);
  }

 private:
  class Sink final : public spdlog::sinks::base_sink<std::mutex> {
   public:
    std::vector<std::string> with(const std::string& text) {
      const std::lock_guard lock(mutex_);
      std::vector<std::string> found;
      for (const auto& line : lines_) {
        if (line.find(text) != std::string::npos) found.push_back(line);
      }
      return found;
    }

   protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
      lines_.emplace_back(message.payload.data(), message.payload.size());
    }
    void flush_() override {}

   private:
    std::vector<std::string> lines_;  // guarded by base_sink's mutex_
  };

  std::shared_ptr<Sink> sink_;
  std::shared_ptr<spdlog::logger> before_;
};

}  // namespace dex::support
