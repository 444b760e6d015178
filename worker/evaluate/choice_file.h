#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "worker/evaluate/result.h"

namespace dex::evaluate {

// A question with one right answer among several.
struct ChoiceQuestion {
  int64_t line = 0;     // of the file, from 1
  std::string context;  // read before the question; empty: none
  std::string question;
  std::vector<std::string> choices;  // two at least
  size_t answer = 0;                 // index of the right one
  Dims dims;                         // what the file says of it: subject; category and condition
};

// Reads questions in the formats they are published in, told apart by their looks:
//   MMLU, CSV without or with a header: question,A,B,C,D,answer with the answer as a letter
//   MMLU and alike, JSON Lines {"question", "choices": […], "answer": 0-based index or letter,
//     "subject"?}
//   BBQ, JSON Lines {"context", "question", "ans0", "ans1", "ans2", "label": 0–2, "category",
//     "context_condition", …}; dims category and condition
// Other keys are passed over. Throws std::runtime_error with every faulty line and what would be
// right.
std::vector<ChoiceQuestion> read_choices(const std::filesystem::path& path);

}  // namespace dex::evaluate
