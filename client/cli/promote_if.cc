#include "client/cli/promote_if.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <vector>

#include "client/cli/evaluation_flags.h"
#include "client/cli/set_field.h"
#include "proto/task_files.h"

namespace dex::cli {

namespace {

base::Status refused(const std::string& text, const std::string& what) {
  return base::invalid_argument(
      "INVALID_FIELD",
      "--promote-if \"" + text + "\" " + what +
          "; write a task, a metric and a limit: held_out.loss<=0, base_guard.kl<=0.1, "
          "branch_effect.value>=0.02, \"perplexity(wiki.test.raw).loss<=0\" or "
          "\"multi_needle(book.txt, lengths=1024,2048).accuracy[length=2048]>=-0.05\", and what it "
          "is against, if not the base: \"perplexity(wiki.test.raw).loss<=0 against ft:…\"");
}

base::Status refused_task(const std::string& text, const std::string& what) {
  return base::invalid_argument(
      "INVALID_FIELD",
      "--task \"" + text + "\" " + what +
          "; write a task with its file and options: \"multiple_choice(mmlu.csv, samples=500)\", "
          "\"answers(nq.jsonl)\" or \"multi_needle(lengths=1024)\"");
}

// One of the two, of the text at hand.
using Refuse = std::function<base::Status(const std::string& what)>;

std::string trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(' ');
  if (begin == std::string_view::npos) return "";
  return std::string(text.substr(begin, text.find_last_not_of(' ') - begin + 1));
}

// "b=1,2, c=3" → "b=1,2", "c=3": a piece without '=' goes on with the one before it.
std::vector<std::string> options_of(std::string_view text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string piece = trimmed(text.substr(begin, end - begin));
    if (out.empty() || piece.find('=') != std::string::npos) {
      out.push_back(piece);
    } else {
      out.back() += "," + piece;
    }
    begin = end + 1;
  }
  return out;
}

// Where a file's name ends, which may have commas: at the one that the first option follows.
size_t end_of_file(std::string_view inside) {
  size_t comma = inside.find(',');
  while (comma != std::string_view::npos) {
    const size_t next = inside.find(',', comma + 1);
    if (inside.substr(comma + 1, next - comma - 1).find('=') != std::string_view::npos)
      return comma;
    comma = next;
  }
  return inside.size();
}

// "lengths=1024", also "length=1024": a word and '=' stand where the file would. A file of such a
// name is written file=….
bool begins_with_option(std::string_view inside) {
  const size_t equals = inside.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string name = trimmed(inside.substr(0, equals));
  return !name.empty() && std::all_of(name.begin(), name.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_';
  });
}

base::Status set_options(const Refuse& refuse, const std::string& task, const std::string& inside,
                         v1::EvaluationTask& out) {
  std::string name = task;
  std::replace(name.begin(), name.end(), '-', '_');
  const auto* field = v1::EvaluationTask::descriptor()->FindFieldByName(name);
  if (field == nullptr)
    return refuse("names a task that reads no file: those that do are " + task_names());
  out.GetReflection()->MutableMessage(&out, field);
  const bool needed = proto::needs_file(out);
  const bool has_file = needed || !begins_with_option(inside);
  const size_t end = has_file ? end_of_file(inside) : 0;
  const std::string file = trimmed(std::string_view(inside).substr(0, end));
  if (needed && file.empty()) return refuse("has no file for " + name);
  if (!file.empty()) DEX_RETURN_IF_ERROR(set_field(out, name + ".file", file));
  const size_t options = has_file ? std::min(end + 1, inside.size()) : 0;
  for (const std::string& option : options_of(std::string_view(inside).substr(options))) {
    const size_t equals = option.find('=');
    DEX_RETURN_IF_ERROR(set_field(out, name + "." + trimmed(option.substr(0, equals)),
                                  trimmed(option.substr(equals + 1))));
  }
  return {};
}

base::Status set_dims(const std::string& text, const std::string& inside, v1::Gate& gate) {
  for (const std::string& dim : options_of(inside)) {
    const size_t equals = dim.find('=');
    if (equals == 0 || equals == std::string::npos)
      return refused(text, "has [" + dim + "], which is not dim=value");
    (*gate.mutable_dims())[trimmed(dim.substr(0, equals))] = trimmed(dim.substr(equals + 1));
  }
  return {};
}

// "TASK.METRIC", "TASK(…).METRIC", "TASK(…).METRIC[…]".
base::Status set_figure(const std::string& text, const std::string& figure, v1::Gate& gate) {
  const size_t open = figure.find('('), close = figure.rfind(')');
  std::string task, metric;
  if (open == std::string::npos) {
    const size_t dot = figure.find('.');
    if (dot != std::string::npos) {
      task = trimmed(figure.substr(0, dot));
      metric = trimmed(figure.substr(dot + 1));
    }
    gate.set_task(task);
  } else {
    if (close == std::string::npos || close < open || figure.substr(close + 1, 1) != ".")
      return refused(text, "does not go on with \").metric\" behind its file");
    task = trimmed(figure.substr(0, open));
    metric = trimmed(figure.substr(close + 2));
    const Refuse refuse = [&text](const std::string& what) { return refused(text, what); };
    DEX_RETURN_IF_ERROR(set_options(refuse, task, figure.substr(open + 1, close - open - 1),
                                    *gate.mutable_evaluation()));
    const size_t bracket = metric.find('[');
    if (bracket != std::string::npos) {
      if (!metric.ends_with(']')) return refused(text, "has a [ without its ]");
      DEX_RETURN_IF_ERROR(
          set_dims(text, metric.substr(bracket + 1, metric.size() - bracket - 2), gate));
      metric = trimmed(metric.substr(0, bracket));
    }
  }
  if (task.empty() || metric.empty()) return refused(text, "does not begin with task.metric");
  gate.set_metric(metric);
  return {};
}

// "base", "ft:…", "kvo_only ft:…".
base::Status set_against(const std::string& text, const std::string& other, v1::Gate& gate) {
  const size_t space = std::min(other.find(' '), other.size());
  const std::string word = other.substr(0, space), id = trimmed(other.substr(space));
  if (word == "kvo_only" || word == "kvo-only") {
    gate.set_against(v1::Gate::AGAINST_KVO_ONLY);
    if (!id.empty()) gate.set_adapter(id);
    return {};
  }
  if (!id.empty()) return refused(text, "has two words behind against");
  if (word == "base") {
    gate.set_against(v1::Gate::AGAINST_BASE);
  } else if (word == "absolute") {
    gate.set_against(v1::Gate::AGAINST_ABSOLUTE);
  } else if (word == "adapter") {
    gate.set_against(v1::Gate::AGAINST_ADAPTER);
  } else if (word.starts_with("ft:")) {
    gate.set_against(v1::Gate::AGAINST_ADAPTER);
    gate.set_adapter(word);
  } else {
    return refused(text, "is against \"" + word +
                             "\", which is none of base, absolute, adapter, an adapter's id "
                             "(ft:…) and kvo_only with one");
  }
  return {};
}

}  // namespace

base::Result<v1::Gate> parse_gate(const std::string& text) {
  // The last one: a file's name may hold the other.
  const size_t most = text.rfind("<="), least = text.rfind(">=");
  if (most == std::string::npos && least == std::string::npos)
    return refused(text, "has neither <= nor >=");
  const bool is_least = most == std::string::npos || (least != std::string::npos && least > most);
  const size_t at = is_least ? least : most;
  constexpr std::string_view kAgainst = " against ";
  const size_t against = std::min(text.find(kAgainst, at), text.size());
  const std::string number = trimmed(std::string_view(text).substr(at + 2, against - at - 2));
  char* end = nullptr;
  const double threshold = std::strtod(number.c_str(), &end);
  if (number.empty() || *end != '\0' || threshold - threshold != 0)
    return refused(text, "does not end with a number");
  v1::Gate gate;
  DEX_RETURN_IF_ERROR(set_figure(text, text.substr(0, at), gate));
  gate.set_op(is_least ? v1::Gate::OP_GE : v1::Gate::OP_LE);
  gate.set_threshold(threshold);
  if (against < text.size())
    DEX_RETURN_IF_ERROR(set_against(text, trimmed(text.substr(against + kAgainst.size())), gate));
  return gate;
}

base::Result<v1::EvaluationTask> parse_task(const std::string& text) {
  const Refuse refuse = [&text](const std::string& what) { return refused_task(text, what); };
  const std::string whole = trimmed(text);
  const size_t open = whole.find('(');
  if (open == std::string::npos || !whole.ends_with(')')) return refuse("is not TASK(…)");
  v1::EvaluationTask task;
  DEX_RETURN_IF_ERROR(set_options(refuse, trimmed(whole.substr(0, open)),
                                  whole.substr(open + 1, whole.size() - open - 2), task));
  return task;
}

}  // namespace dex::cli
