#include "worker/evaluate/documents.h"

#include "worker/evaluate/task_file.h"

namespace dex::evaluate {

TextFile read_texts(const std::filesystem::path& path, TextFormat format) {
  std::string content = read_task_file(path);
  const bool by_name = path.extension() == ".jsonl" || path.extension() == ".json";
  TextFile out;
  out.raw = format == TextFormat::kRaw || (format == TextFormat::kAuto && !by_name);
  if (out.raw) {
    out.documents.push_back({1, std::move(content), {}, {}});
    return out;
  }
  FileFaults faults(path);
  for_each_row(content, faults, [&](JsonRow& row) {
    auto text = row.text("text");
    if (!text) return;
    out.documents.push_back(
        {row.line(), std::move(*text), row.optional_text("tag"), row.optional_text("language")});
  });
  faults.check(
      out.documents.size(),
      R"(A line must be a JSON object with "text"; a plain text file is read with --format raw.)");
  return out;
}

}  // namespace dex::evaluate
