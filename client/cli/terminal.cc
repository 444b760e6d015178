#include "client/cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdio>

namespace dex::cli {

namespace {

std::string styled(const Terminal& terminal, std::string_view code, std::string_view text) {
  if (!terminal.color) return std::string(text);
  return "\x1b[" + std::string(code) + "m" + std::string(text) + "\x1b[0m";
}

std::string format(const char* pattern, double value) {
  std::array<char, 64> buffer{};
  std::snprintf(buffer.data(), buffer.size(), pattern, value);
  return buffer.data();
}

// `value` in the largest of 1000-fold units that keeps it at 1 or more.
std::string scaled(double value, const std::array<const char*, 5>& units) {
  size_t unit = 0;
  while (std::abs(value) >= 1000 && unit + 1 < units.size()) {
    value /= 1000;
    ++unit;
  }
  const char* pattern = unit == 0 || std::abs(value) >= 100 ? "%.0f" : "%.1f";
  return format(pattern, value) + units[unit];
}

}  // namespace

Terminal detect_terminal(bool no_color) {
  Terminal terminal;
  terminal.interactive = isatty(STDERR_FILENO) == 1;
  terminal.can_ask = isatty(STDIN_FILENO) == 1;
  terminal.color = terminal.interactive && !no_color;
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 20)
    terminal.columns = size.ws_col;
  return terminal;
}

std::string bold(const Terminal& terminal, std::string_view text) {
  return styled(terminal, "1", text);
}
std::string dim(const Terminal& terminal, std::string_view text) {
  return styled(terminal, "2", text);
}
std::string red(const Terminal& terminal, std::string_view text) {
  return styled(terminal, "31", text);
}
std::string green(const Terminal& terminal, std::string_view text) {
  return styled(terminal, "32", text);
}
std::string yellow(const Terminal& terminal, std::string_view text) {
  return styled(terminal, "33", text);
}

size_t display_width(std::string_view text) {
  size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

std::string fixed(double value, int digits) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string human_bytes(double bytes) {
  return scaled(bytes, {" B", " kB", " MB", " GB", " TB"});
}
std::string human_count(double count) {
  return scaled(count, {"", " k", " M", " G", " T"});
}

std::string human_seconds(double seconds) {
  if (seconds < 60) return format("%.0f s", seconds);
  const auto whole = static_cast<long>(seconds + 0.5);
  if (whole < 3600) return std::to_string(whole / 60) + " m " + std::to_string(whole % 60) + " s";
  return std::to_string(whole / 3600) + " h " + std::to_string(whole % 3600 / 60) + " m";
}

}  // namespace dex::cli
