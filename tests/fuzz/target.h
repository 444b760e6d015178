#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "services/base/status.h"

// A fuzz target is one file, targets/<parser>.cc, with libFuzzer's entry point and a corpus to
// begin with. It gives the parser the bytes and lets through only the failures that the parser's
// header names: any other exception, signal, limit of memory or of time is a fault.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace dex::fuzz {

struct Corpus {
  // Well-formed inputs of every kind, and below them inputs that once were too much for the parser.
  // At least one must be taken(), or nothing behind the parser's first check is ever reached.
  std::vector<std::string> seeds;
  std::vector<std::string> words;  // of the format: keys, names, marks
};

// Defined by the target.
Corpus corpus();

// Counts an input that the parser found nothing wrong with.
void taken();
uint64_t taken_count();  // so far, in this process

inline std::string_view view(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Aborts with the words when a target's own expectation does not hold.
void require(bool holds, std::string_view what);

// A refusal has words.
void check(const base::Status& status);

// Runs what refuses by std::runtime_error with words in it, as the rooms below worker/ do. Any
// other exception goes on, and ends the process.
template <class Parse>
void parse(const Parse& body) {
  try {
    body();
    taken();
  } catch (const std::runtime_error& refusal) {
    require(*refusal.what() != '\0', "a refusal without words");
  }
}

// Bytes as a file of this process, for parsers that open one: overwritten by the next call with the
// same name. Only its owner may write to it.
std::filesystem::path file_with(std::string_view bytes, const std::string& name = "input");

// Inputs that are several files: the parts between lines of "=====".
std::vector<std::string> parts_of(std::string_view input);
std::string joined(const std::vector<std::string>& parts);

}  // namespace dex::fuzz
