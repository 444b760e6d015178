#include "services/data/dataset.h"

#include "services/data/file_check.h"

namespace dex::data {

base::Result<EncodedDataset> load_encoded(const std::filesystem::path& path,
                                          const text::Tokenizer* tokenizer,
                                          const text::ChatTemplate* chat_template,
                                          const LoadOptions& options, std::stop_token stop) {
  const text::RowEncoder encoder(tokenizer, chat_template, options.encoder);
  EncodedDataset dataset;
  FileCheck::Options checking;
  checking.reading.find_duplicates = false;
  checking.reading.max_findings = 500;     // of each layer
  checking.reading.skip_budget_ratio = 1;  // judged with what the token layer drops
  checking.reading.limits.minimum_rows = 0;
  checking.encoder = &encoder;
  checking.tokenizer = tokenizer;
  checking.max_seq_length = options.encoder.max_seq_length;
  checking.preset = options.preset;
  checking.skip_budget_ratio = options.skip_budget_ratio;
  if (options.keep_examples) {
    checking.on_row = [&](const Row& row, std::vector<text::EncodedRow> sequences) {
      const uint64_t hash = text::content_hash(row.content);
      for (text::EncodedRow& sequence : sequences)
        dataset.examples.push_back({std::move(sequence), row.line, row.tag, row.language, hash});
    };
  }
  FileCheck check(std::move(checking));
  DEX_RETURN_IF_ERROR(read_pieces(path, [&](std::string_view piece) -> base::Status {
    if (stop.stop_requested())
      return base::Status(base::Code::kCancelled, "CLIENT_CANCELLED", "loading stopped");
    check.feed(piece);
    if (check.tokens() <= options.max_tokens) return {};
    return base::Status(base::Code::kResourceExhausted, "QUOTA_EXCEEDED",
                        path.string() + " has more than " + std::to_string(options.max_tokens) +
                            " tokens, which is what one job may hold in memory; split the file");
  }));
  FileReport report = check.finish();
  DEX_RETURN_IF_ERROR(report.verdict);

  dataset.format = report.structure.format.value_or(text::RowFormat::kText);
  dataset.tokens = std::move(*report.tokens);
  dataset.rows = std::move(report.structure.statistics);
  dataset.dropped = std::move(report.dropped);
  dataset.findings = std::move(report.findings);
  dataset.finding_counts = std::move(report.finding_counts);
  return dataset;
}

}  // namespace dex::data
