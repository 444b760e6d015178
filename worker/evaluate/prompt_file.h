#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "services/text/row.h"

// Files of things to ask, and what is right to answer. Each reader throws std::runtime_error with
// every faulty line and what would be right; keys that it does not name are passed over.
namespace dex::evaluate {

// A prompt with the answers that count as right, and the text that an answer must keep to.
struct AnswerQuestion {
  int64_t line = 0;
  std::string prompt;                   // text to continue …
  std::vector<text::Message> messages;  // … or a chat to answer; one of the two is empty
  bool one_line = false;                // the answer ends with its line
  std::vector<std::string> answers;     // one at least, unless there is a source
  std::string source;                   // a summary's text, a question's context; empty: none
};
// JSON Lines {"prompt" or "messages", "answers", "source"?}, or as question sets over given text
// (Natural Questions and alike) have it, {"question", "context"?, "answers"}: those become the
// prompt "CONTEXT\n\nQuestion: QUESTION\nAnswer:", and the context is their source. "answers" is
// a string or an array of them; NQ-open's "answer" stands for it where a row has no "answers".
// Beside a "source" answers may be absent: a text to sum up needs no reference.
std::vector<AnswerQuestion> read_answers(const std::filesystem::path& path);

// A text with its class.
struct LabelledText {
  int64_t line = 0;
  std::string text, label;
};
// JSON Lines {"text", "label"}; the label a string or a whole number. Two labels at least.
std::vector<LabelledText> read_labelled(const std::filesystem::path& path);

// An instruction to follow.
struct Instruction {
  int64_t line = 0;
  std::string text;
  std::string dataset;  // as AlpacaEval's set names it; empty: absent
};
// AlpacaEval's evaluation set, a JSON list of {"instruction", "dataset"?}, or the same as JSON
// Lines; "prompt" is taken for "instruction".
std::vector<Instruction> read_instructions(const std::filesystem::path& path);

}  // namespace dex::evaluate
