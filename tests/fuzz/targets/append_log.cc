// The cutter of Redis' append-only log, which reads what a killed process left.
#include "services/base/append_log.h"

#include <sstream>

#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

std::string command(const std::vector<std::string>& words) {
  std::string text = "*" + std::to_string(words.size()) + "\r\n";
  for (const std::string& word : words)
    text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

}  // namespace

Corpus corpus() {
  const std::string set = command({"SET", "dex:{s0}:job:1", "a\r\nb"});
  const std::string begin = command({"SELECT", "0"}) + set + command({"MULTI"}) + set;
  const std::string whole = begin + command({"EXEC"});
  return {{whole, begin, whole + begin, begin.substr(0, begin.size() - 3), set,
           // Lengths that no word has, once added to in 64 bits.
           command({"MULTI"}) + "*1\r\n$9223372036854775807\r\nSET\r\n",
           "*9223372036854775807\r\n" + set, "*1\r\n$16\r\n" + std::string(16, 'x') + "\r\n",
           "REDIS0010\n"},
          {"*1\r\n", "$5\r\nMULTI\r\n", "$4\r\nEXEC\r\n", "\r\n", "$", "*", "multi", "exec"}};
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  std::istringstream log(std::string(view(data, size)));
  const auto begin = dex::base::torn_transaction(log);
  if (!begin) return 0;
  taken();
  require(*begin >= 0 && *begin < static_cast<int64_t>(size), "a cut lies in the log");
  // What is left is a log that ends elsewhere.
  std::istringstream left(std::string(view(data, static_cast<size_t>(*begin))));
  require(!dex::base::torn_transaction(left), "what was cut is not torn");
  return 0;
}
