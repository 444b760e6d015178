#include "worker/evaluate/choice_file.h"

#include <optional>
#include <utility>

#include "worker/evaluate/csv.h"
#include "worker/evaluate/task_file.h"

namespace dex::evaluate {
namespace {

using Kind = data::JsonLine::Kind;

// "A" → 0; nothing for what is no letter of `count` choices.
std::optional<size_t> letter_index(std::string_view text, size_t count) {
  if (text.size() != 1 || text[0] < 'A') return std::nullopt;
  const auto index = static_cast<size_t>(text[0] - 'A');
  return index < count ? std::optional(index) : std::nullopt;
}

std::string last_letter(size_t count) {
  return {static_cast<char>('A' + count - 1)};
}

// The index under `key`: a number below `count`, or a letter.
std::optional<size_t> read_answer(JsonRow& row, std::string_view key, size_t count) {
  const auto value = row.find(key);
  if (value && value->is(Kind::kNumber)) {
    const auto number = value->integer();
    if (number && *number >= 0 && *number < static_cast<int64_t>(count))
      return static_cast<size_t>(*number);
  }
  if (value && value->is(Kind::kString)) {
    if (const auto index = letter_index(value->string(), count)) return index;
  }
  row.fault('"' + std::string(key) + "\" must be an index from 0 to " + std::to_string(count - 1) +
            " or a letter from A to " + last_letter(count) + ", got " +
            (value ? std::string(value->raw().substr(0, 40)) : "nothing"));
  return std::nullopt;
}

void read_bbq(JsonRow& row, std::vector<ChoiceQuestion>& out) {
  const auto context = row.text("context"), question = row.text("question");
  std::vector<std::string> choices;
  for (const char* key : {"ans0", "ans1", "ans2"}) {
    if (auto choice = row.text(key)) choices.push_back(std::move(*choice));
  }
  const auto answer = read_answer(row, "label", 3);
  if (!context || !question || choices.size() < 3 || !answer) return;
  ChoiceQuestion read{row.line(), *context, *question, std::move(choices), *answer, {}};
  const std::pair<const char*, const char*> shown[] = {{"category", "category"},
                                                       {"condition", "context_condition"}};
  for (const auto& [dim, key] : shown) {
    if (auto value = row.optional_text(key); !value.empty())
      read.dims.emplace_back(dim, std::move(value));
  }
  out.push_back(std::move(read));
}

void read_json(JsonRow& row, std::vector<ChoiceQuestion>& out) {
  if (row.has("ans0") || row.has("context_condition")) return read_bbq(row, out);
  const auto question = row.text("question");
  auto choices = row.texts("choices", 2);
  if (!choices) return;
  if (choices->size() > 26) {
    row.fault("has " + std::to_string(choices->size()) + " choices; at most 26 are taken");
    return;
  }
  const auto answer = read_answer(row, "answer", choices->size());
  if (!question || !answer) return;
  ChoiceQuestion read{row.line(), {}, *question, std::move(*choices), *answer, {}};
  if (auto subject = row.optional_text("subject"); !subject.empty())
    read.dims.emplace_back("subject", std::move(subject));
  out.push_back(std::move(read));
}

void read_csv(std::string_view text, FileFaults& faults, std::vector<ChoiceQuestion>& out) {
  bool first = true;
  for (CsvRow& row : parse_csv(text, faults)) {
    const bool header =
        std::exchange(first, false) && row.fields[0] == "question" && row.fields.back() == "answer";
    if (header) continue;
    if (row.fields.size() != 6) {
      faults.add(row.line, "has " + std::to_string(row.fields.size()) +
                               " fields, must have 6: question,A,B,C,D,answer");
      continue;
    }
    const auto answer = letter_index(row.fields[5], 4);
    if (!answer) {
      faults.add(row.line, "the answer must be a letter from A to D, got \"" + row.fields[5] + '"');
      continue;
    }
    bool blank = false;
    for (int i = 0; i < 5; ++i) blank = blank || is_blank(row.fields[i]);
    if (blank) {
      faults.add(row.line, "the question or a choice is blank");
      continue;
    }
    out.push_back({row.line,
                   {},
                   std::move(row.fields[0]),
                   {row.fields[1], row.fields[2], row.fields[3], row.fields[4]},
                   *answer,
                   {}});
  }
}

}  // namespace

std::vector<ChoiceQuestion> read_choices(const std::filesystem::path& path) {
  const std::string text = read_task_file(path);
  FileFaults faults(path);
  std::vector<ChoiceQuestion> out;
  const char first = text[text.find_first_not_of(" \t\r\n")];
  if (first == '{' || first == '[') {
    for_each_row(text, faults, [&](JsonRow& row) { read_json(row, out); });
  } else {
    read_csv(text, faults, out);
  }
  faults.check(out.size(),
               "Expected MMLU's CSV (question,A,B,C,D,answer), JSON Lines with question, choices "
               "and answer, "
               "or BBQ's JSON Lines with context, question, ans0, ans1, ans2 and label.");
  return out;
}

}  // namespace dex::evaluate
