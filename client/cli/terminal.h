#pragma once

#include <string>
#include <string_view>

namespace dex::cli {

// What is known of the terminal behind a descriptor. Made once in main, from isatty, NO_COLOR and
// --no-color.
struct Terminal {
  bool interactive = false;  // stderr is a terminal: progress may be redrawn
  bool color = false;
  bool can_ask = false;  // stdin is a terminal: questions are possible
  int columns = 80;
};

Terminal detect_terminal(bool no_color);

std::string bold(const Terminal& terminal, std::string_view text);
std::string dim(const Terminal& terminal, std::string_view text);
std::string red(const Terminal& terminal, std::string_view text);
std::string green(const Terminal& terminal, std::string_view text);
std::string yellow(const Terminal& terminal, std::string_view text);

// Characters that a terminal shows for valid UTF-8, counting each code point as one column.
size_t display_width(std::string_view text);

// "1.2 MB", "3 m 20 s", "134.5 M": short forms for people.
std::string fixed(double value, int digits);  // "2.1761"
std::string human_bytes(double bytes);
std::string human_seconds(double seconds);
std::string human_count(double count);

}  // namespace dex::cli
