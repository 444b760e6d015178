#include "services/base/logging.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>

namespace dex::base {

namespace {

// A key is its prefix and 49 characters; anything long enough to be a guessable part is blotted
// out.
constexpr size_t kShortestSecret = 12;
constexpr std::array<std::string_view, 3> kKeyPrefixes = {"dex_", "dexw_", "dexg_"};

bool is_alphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

// Length of the key that starts `text`, 0 if none does.
size_t key_length(std::string_view text, std::string_view& prefix) {
  for (const auto candidate : kKeyPrefixes) {
    if (!text.starts_with(candidate)) continue;
    size_t end = candidate.size();
    while (end < text.size() && is_alphanumeric(text[end])) ++end;
    if (end - candidate.size() < kShortestSecret) continue;
    prefix = candidate;
    return end;
  }
  return 0;
}

void append_escaped(std::string& out, char c) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  const auto byte = static_cast<unsigned char>(c);
  if (c == '\n') {
    out += "\\n";
  } else if (c == '\t') {
    out += ' ';
  } else if (byte < 0x20 || byte == 0x7f) {
    out += "\\x";
    out += kDigits[byte >> 4];
    out += kDigits[byte & 15];
  } else {
    out += c;
  }
}

class SanitizingFormatter final : public spdlog::formatter {
 public:
  explicit SanitizingFormatter(std::unique_ptr<spdlog::formatter> inner)
      : inner_(std::move(inner)) {}
  void format(const spdlog::details::log_msg& message, spdlog::memory_buf_t& out) override {
    const std::string text = sanitize_log_text({message.payload.data(), message.payload.size()});
    spdlog::details::log_msg copy = message;
    copy.payload = text;
    inner_->format(copy, out);
  }
  [[nodiscard]] std::unique_ptr<spdlog::formatter> clone() const override {
    return std::make_unique<SanitizingFormatter>(inner_->clone());
  }

 private:
  std::unique_ptr<spdlog::formatter> inner_;
};

}  // namespace

std::string sanitize_log_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    std::string_view prefix;
    const bool inside_word = i > 0 && is_alphanumeric(text[i - 1]);
    const size_t key = inside_word ? 0 : key_length(text.substr(i), prefix);
    if (key > 0) {
      out += prefix;
      out += "…";
      i += key;
    } else {
      append_escaped(out, text[i++]);
    }
  }
  return out;
}

Status init_logging(const LoggingOptions& options) {
  const auto level = spdlog::level::from_str(options.level);
  if (level == spdlog::level::off && options.level != "off") {
    return invalid_argument("INVALID_FIELD", "log level '" + options.level +
                                                 "' is unknown; trace, debug, info, warn, error "
                                                 "or off");
  }
  spdlog::sink_ptr sink;
  try {
    if (options.file.empty()) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    } else {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file.string());
    }
  } catch (const spdlog::spdlog_ex& error) {  // spdlog reports by exception; nothing else does here
    return internal("cannot write the log: " + std::string(error.what()));
  }
  auto logger = std::make_shared<spdlog::logger>(options.component, std::move(sink));
  logger->set_formatter(
      std::make_unique<SanitizingFormatter>(std::make_unique<spdlog::pattern_formatter>(
          "%Y-%m-%dT%H:%M:%S.%eZ %l %n: %v", spdlog::pattern_time_type::utc)));
  logger->set_level(level);
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace dex::base
