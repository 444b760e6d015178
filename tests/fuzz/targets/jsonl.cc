// Training data (api.md §5): the validator that sees uploads while they arrive, and the reader of
// one line below it.
#include "services/data/json_line.h"
#include "services/data/validator.h"
#include "tests/fuzz/target.h"

namespace dex::fuzz {

namespace {

// Reads every value of a line in every way it may be read.
void visit(data::JsonLine::Value value) {
  using Kind = data::JsonLine::Kind;
  switch (value.kind()) {
    case Kind::kString:
      (void)value.string();
      return;
    case Kind::kNumber:
      (void)value.number();
      (void)value.integer();
      return;
    case Kind::kArray:
      value.for_each_item([](size_t, data::JsonLine::Value item) { visit(item); });
      return;
    case Kind::kObject:
      value.for_each_member([](std::string_view, data::JsonLine::Value item) { visit(item); });
      return;
    default:
      return;
  }
}

data::Report report_of(std::string_view bytes, size_t piece) {
  data::Validator::Options options;
  options.limits.minimum_rows = 1;
  options.limits.line_bytes = 4096;  // so that inputs get there
  data::Validator validator(options);
  for (size_t at = 0; at < bytes.size(); at += piece) validator.feed(bytes.substr(at, piece));
  return validator.finish();
}

}  // namespace

Corpus corpus() {
  Corpus made;
  made.seeds = {
      R"({"messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi\n"}, {"role": "assistant", "content": "Hello", "weight": 1}], "tag": "a", "language": "en"})"
      "\n"
      R"({"messages": [{"role": "user", "content": "\u00e9\ud83d\ude42"}, {"role": "assistant", "content": "é"}]})"
      "\n",
      R"({"prompt": "def f(x):", "completion": " return x"})"
      "\r\n"
      R"({"prompt": "a", "completion": "b", "id": "7"})"
      "\r\n",
      "\xEF\xBB\xBF"
      R"({"text": "one line, and no line's end"})",
      R"({"input_ids": [1, 2, 3], "labels": [-100, 2, 3]})"
      "\n"
      R"({"input_ids": [4, 5, 6, 7], "loss_weights": [0, 1, 0.5, 1]})"
      "\n",
      "[{\"text\": \"an array\"},\n {\"text\": \"of rows\"}]\n",
      "\n\n{\"text\": 1e999}\n{\"text\": \"\\ud800\"}\n{\"text\": \"a\", \"text\": \"b\"}\n",
      "\x1F\x8B\x08 looks compressed",
  };
  made.words = {"\"messages\"",     "\"role\"",   "\"content\"",    "\"assistant\"",
                "\"weight\"",       "\"prompt\"", "\"completion\"", "\"text\"",
                "\"input_ids\"",    "\"labels\"", "\"tag\"",        "\"language\"",
                "\"loss_weights\"", "\n",         "\r\n",           "\\u0000",
                "\\ud83d",          "\xC3\xA9",   "\xED\xA0\x80",   "}\n{"};
  return made;
}

}  // namespace dex::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dex::fuzz;
  const std::string_view bytes = view(data, size);
  const auto whole = report_of(bytes, size + 1);
  require(whole.ready || !whole.message.empty(), "an invalid file says why");
  require(whole.findings.size() <= 1000, "findings are bounded");
  // However the bytes are cut, the file is the same.
  const auto cut = report_of(bytes, 1 + size % 7);
  require(whole.ready == cut.ready && whole.message == cut.message, "a cut changes no verdict");
  require(whole.finding_counts == cut.finding_counts, "a cut changes no finding");
  if (whole.ready) taken();

  dex::data::JsonLine line;
  if (line.parse(bytes, [](const dex::data::JsonLine::Fault&) {})) visit(line.root());
  return 0;
}
