#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "services/data/validator.h"

namespace dex::data {

// Good rows of format text, all different, one a line.
inline std::string text_rows(int count, int first = 0) {
  std::string file;
  for (int i = first; i < first + count; ++i)
    file += "{\"text\": \"row " + std::to_string(i) + "\"}\n";
  return file;
}

inline std::string chat_rows(int count) {
  std::string file;
  for (int i = 0; i < count; ++i) {
    file += R"({"messages": [{"role": "user", "content": "q)" + std::to_string(i) +
            R"("}, {"role": "assistant", "content": "a"}]})" + "\n";
  }
  return file;
}

inline Report check(std::string_view file, Validator::Options options = {}) {
  Validator validator(std::move(options));
  validator.feed(file);
  return validator.finish();
}

// The findings of one code.
inline std::vector<Finding> of_code(const Report& report, std::string_view code) {
  std::vector<Finding> found;
  for (const Finding& finding : report.findings) {
    if (finding.code == code) found.push_back(finding);
  }
  return found;
}

inline int64_t count_of(const Report& report, std::string_view code) {
  const auto found = report.finding_counts.find(code);
  return found == report.finding_counts.end() ? 0 : found->second;
}

// The one finding of a code; fails the test if there are more or none.
inline Finding only(const Report& report, std::string_view code) {
  const auto found = of_code(report, code);
  EXPECT_EQ(found.size(), 1u) << code;
  return found.empty() ? Finding{} : found.front();
}

// A directory of the test's own, gone afterwards.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string name = testing::TempDir() + "dex_data_XXXXXX";
    path_ = ::mkdtemp(name.data());
  }
  ~ScratchFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path write(const std::string& name, std::string_view content) const {
    std::ofstream(path_ / name, std::ios::binary) << content;
    return path_ / name;
  }

 private:
  std::filesystem::path path_;
};

}  // namespace dex::data
