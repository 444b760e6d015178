#include "client/cli/evaluation_view.h"

#include <map>

#include "client/cli/head_grid.h"
#include "client/cli/job_view.h"
#include "client/cli/names.h"

namespace dex::cli {

namespace {

std::string between(bool known, double low, double high) {
  return known ? fixed(low, 4) + " – " + fixed(high, 4) : "–";
}

template <typename Message>  // a row or a sample
std::string where(const Message& message) {
  std::map<std::string, std::string> dims;  // by name: the message has no order
  for (const auto& [name, value] : message.dims()) dims[name] = value;
  std::string text;
  for (const auto& [name, value] : dims) text += (text.empty() ? "" : " ") + name + "=" + value;
  return text;
}

std::string state_of(const v1::Evaluation& evaluation) {
  return words(short_name(evaluation.state())) + waiting_text(evaluation.waiting_reason());
}

// The end of a text, where prompts ask and answers stand, as one line of a terminal.
std::string one_line(std::string text) {
  constexpr size_t kShown = 100;  // characters
  for (char& c : text) c = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  size_t left_out = 0;
  for (size_t width = display_width(text); width > kShown; --width) {
    ++left_out;
    while (left_out < text.size() && (static_cast<unsigned char>(text[left_out]) & 0xC0) == 0x80)
      ++left_out;
  }
  return left_out == 0 ? text : "…" + text.substr(left_out);
}

std::string subject_text(const v1::EvaluationSubject& subject) {
  const std::string what = subject.adapter().empty() ? subject.model() : subject.adapter();
  return subject.label().empty() ? what : subject.label() + ": " + what;
}

std::string task_text(const v1::EvaluationTask& task) {
  const auto* oneof = v1::EvaluationTask::descriptor()->FindOneofByName("task");
  const auto* field = task.GetReflection()->GetOneofFieldDescriptor(task, oneof);
  return field == nullptr ? "?" : field->name();
}

std::string tasks_text(const v1::EvaluationSpec& spec) {
  std::string text;
  for (const auto& task : spec.tasks()) text += (text.empty() ? "" : ", ") + task_text(task);
  return text;
}

std::string tasks_done(const v1::Evaluation& evaluation) {
  return std::to_string(evaluation.progress().step()) + "/" +
         std::to_string(evaluation.progress().total_steps());
}

std::string head_table_text(const v1::HeadTable& table) {
  std::vector<std::vector<double>> scores;
  for (const auto& layer : table.layers())
    scores.emplace_back(layer.value().begin(), layer.value().end());
  return score_grid_text(table.metric() + " of " + table.subject(), scores);
}

}  // namespace

Table evaluation_table(const std::vector<v1::Evaluation>& evaluations) {
  Table table = {{"ID", "STATE", "TASKS", "DONE", "CREATED"}};
  for (const auto& evaluation : evaluations) {
    table.push_back({evaluation.id(), state_of(evaluation), tasks_text(evaluation.spec()),
                     tasks_done(evaluation), local_time(evaluation.create_time())});
  }
  return table;
}

Table evaluation_details(const v1::Evaluation& evaluation) {
  Table table = {{"FIELD", "VALUE"},
                 {"id", evaluation.id()},
                 {"state", state_of(evaluation)},
                 {"tasks", tasks_text(evaluation.spec())},
                 {"done", tasks_done(evaluation)}};
  for (const auto& subject : evaluation.spec().subjects())
    table.push_back({"subject", subject_text(subject)});
  if (evaluation.attempt() > 1) table.push_back({"attempt", std::to_string(evaluation.attempt())});
  if (evaluation.has_error()) {
    table.push_back({"error", evaluation.error().code()});
    table.push_back({"message", evaluation.error().message()});
  }
  table.push_back({"created", local_time(evaluation.create_time())});
  return table;
}

Table row_table(const std::vector<v1::EvaluationRow>& rows) {
  Table table = {
      {"METRIC", "WHERE", "SUBJECT", "VALUE", "INTERVAL", "N", "DELTA", "INTERVAL", "VERDICT"}};
  for (const auto& row : rows) {
    const bool compared = row.has_delta();
    table.push_back(
        {row.metric(), where(row), row.subject(), fixed(row.value(), 4),
         between(row.has_low(), row.low(), row.high()), std::to_string(row.n()),
         compared ? fixed(row.delta(), 4) : "",
         compared ? between(row.has_delta_low(), row.delta_low(), row.delta_high()) : "",
         compared ? words(short_name(row.verdict())) : ""});
  }
  return table;
}

std::string comparison_text(const v1::CompareEvaluationsResponse& comparison,
                            const Terminal& terminal) {
  const Table head = {
      {"METRIC", "WHERE", "A", "B", "VALUE A", "VALUE B", "B - A", "INTERVAL", "N", "VERDICT"}};
  std::string text;
  const auto& rows = comparison.differences();
  for (int begin = 0; begin < rows.size();) {
    Table table = head;
    int end = begin;
    for (; end < rows.size() && rows[end].task_a() == rows[begin].task_a(); ++end) {
      const auto& row = rows[end];
      table.push_back({row.metric(), where(row), row.subject_a(), row.subject_b(),
                       fixed(row.value_a(), 4), fixed(row.value_b(), 4), fixed(row.delta(), 4),
                       between(row.has_delta_low(), row.delta_low(), row.delta_high()),
                       std::to_string(row.n()), words(short_name(row.verdict()))});
    }
    text += (text.empty() ? "" : "\n") + rows[begin].task() + "\n" + render(table, terminal);
    begin = end;
  }
  for (const auto& note : comparison.notes()) text += "note: " + note + "\n";
  return text;
}

std::string sample_text(const v1::EvaluationSample& sample, const Terminal& terminal) {
  std::string head = sample.task();
  if (const std::string place = where(sample); !place.empty()) head += ", " + place;
  if (sample.line() > 0) head += ", line " + std::to_string(sample.line());
  head += ", " + sample.subject() + ": " + fixed(sample.score(), 4);
  if (sample.has_baseline_score()) head += ", baseline " + fixed(sample.baseline_score(), 4);
  std::string text = bold(terminal, one_line(head)) + "\n";
  const auto add = [&text](const char* name, const std::string& said) {
    if (!said.empty()) text += name + one_line(said) + "\n";
  };
  add("  prompt    ", sample.prompt());
  add("  expected  ", sample.expected());
  add("  output    ", sample.output());
  return text;
}

std::string evaluation_text(const v1::Evaluation& evaluation, const Terminal& terminal) {
  std::string text = render(evaluation_details(evaluation), terminal);
  for (const auto& result : evaluation.results()) {
    text += "\n" + result.task() + ", " +
            (result.file().empty() ? "the shipped text" : result.file()) +
            (result.settings().empty() ? "" : ", " + result.settings()) + "\n";
    if (!result.rows().empty())
      text += render(row_table({result.rows().begin(), result.rows().end()}), terminal);
    for (const auto& file : result.files()) text += "  " + file + "\n";
    if (!result.files().empty())
      text += "get them: dexctl evaluations download " + evaluation.id() + " FOLDER\n";
    for (const auto& table : result.head_tables()) {
      if (!table.pairs()) text += "\n" + head_table_text(table);
    }
    for (const auto& note : result.notes()) text += "note: " + note + "\n";
  }
  return text;
}

}  // namespace dex::cli
