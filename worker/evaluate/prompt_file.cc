#include "worker/evaluate/prompt_file.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <utility>

#include "worker/evaluate/task_file.h"

namespace dex::evaluate {
namespace {

using Kind = data::JsonLine::Kind;

std::optional<std::vector<text::Message>> read_messages(JsonRow& row) {
  const auto list = row.find("messages");
  std::vector<text::Message> out;
  bool good = list->is(Kind::kArray);
  if (good) {
    list->for_each_item([&](size_t, JsonRow::Value item) {
      const auto role = item.is(Kind::kObject) ? item.find("role") : std::nullopt;
      const auto content = item.is(Kind::kObject) ? item.find("content") : std::nullopt;
      good = good && role && role->is(Kind::kString) && content && content->is(Kind::kString);
      if (good) out.push_back({.role = role->string(), .content = content->string()});
    });
  }
  if (good && !out.empty() && out.back().role != "assistant") return out;
  row.fault(
      "\"messages\" must be an array of {\"role\", \"content\"} that ends before the assistant's "
      "answer");
  return std::nullopt;
}

// What counts as right stands under "answers", or under "answer" as NQ-open has it.
const char* answers_key(const JsonRow& row) {
  if (row.has("answers")) return "answers";
  return row.has("answer") ? "answer" : nullptr;
}

// Of a row whose prompt is read; false: something is wrong.
bool read_rightness(JsonRow& row, AnswerQuestion& read) {
  if (row.has("source") && !row.has("question")) {
    auto source = row.text("source");
    if (!source) return false;
    read.source = std::move(*source);
    if (answers_key(row) == nullptr) return true;
  }
  const char* key = answers_key(row);
  auto answers = row.text_or_texts(key == nullptr ? "answers" : key);
  if (answers) read.answers = std::move(*answers);
  return answers.has_value();
}

void read_answer_row(JsonRow& row, std::vector<AnswerQuestion>& out) {
  AnswerQuestion read;
  read.line = row.line();
  bool good = true;
  if (row.has("messages")) {
    auto messages = read_messages(row);
    good = messages.has_value();
    if (good) read.messages = std::move(*messages);
  } else if (row.has("question")) {
    const auto question = row.text("question");
    const std::string context = row.optional_text("context");
    good = question.has_value();
    if (good)
      read.prompt =
          (context.empty() ? "" : context + "\n\n") + "Question: " + *question + "\nAnswer:";
    read.source = context;
    read.one_line = true;
  } else {
    auto prompt = row.text("prompt");
    good = prompt.has_value();
    if (good) read.prompt = std::move(*prompt);
  }
  good = read_rightness(row, read) && good;
  if (!good) return;
  out.push_back(std::move(read));
}

void read_labelled_row(JsonRow& row, std::vector<LabelledText>& out) {
  auto text = row.text("text");
  const auto label = row.find("label");
  std::string name;
  if (label && label->is(Kind::kString)) name = label->string();
  if (label && label->is(Kind::kNumber) && label->integer())
    name = std::to_string(*label->integer());
  if (is_blank(name)) {
    row.fault("\"label\" must be a string or a whole number, got " +
              (label ? std::string(label->raw().substr(0, 40)) : "nothing"));
    return;
  }
  if (text) out.push_back({row.line(), std::move(*text), std::move(name)});
}

}  // namespace

std::vector<AnswerQuestion> read_answers(const std::filesystem::path& path) {
  const std::string text = read_task_file(path);
  FileFaults faults(path);
  std::vector<AnswerQuestion> out;
  for_each_row(text, faults, [&](JsonRow& row) { read_answer_row(row, out); });
  faults.check(
      out.size(),
      R"(A line must be {"prompt" or "messages", "answers" or "source" or both} or {"question", "context"?, "answers"}; "answers", or "answer" as NQ-open has it, is a string or an array of strings.)");
  return out;
}

std::vector<LabelledText> read_labelled(const std::filesystem::path& path) {
  const std::string text = read_task_file(path);
  FileFaults faults(path);
  std::vector<LabelledText> out;
  for_each_row(text, faults, [&](JsonRow& row) { read_labelled_row(row, out); });
  faults.check(out.size(), R"(A line must be {"text", "label"}.)");
  const bool one_class =
      std::ranges::all_of(out, [&](const LabelledText& row) { return row.label == out[0].label; });
  if (one_class) {
    throw std::runtime_error(path.string() + ": every row has the label " + out[0].label +
                             "; a classification needs two labels at least");
  }
  return out;
}

std::vector<Instruction> read_instructions(const std::filesystem::path& path) {
  const std::string text = read_task_file(path);
  FileFaults faults(path);
  std::vector<Instruction> out;
  for_each_row(text, faults, [&](JsonRow& row) {
    auto words = row.text(row.has("prompt") && !row.has("instruction") ? "prompt" : "instruction");
    if (words) out.push_back({row.line(), std::move(*words), row.optional_text("dataset")});
  });
  faults.check(
      out.size(),
      R"(Expected a JSON list or JSON Lines of {"instruction"}, as AlpacaEval's evaluation set.)");
  return out;
}

}  // namespace dex::evaluate
