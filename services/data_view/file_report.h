#pragma once

#include <optional>

#include "dex/v1/files.pb.h"
#include "services/data/file_check.h"
#include "services/data/file_preview.h"
#include "services/data/validator.h"
#include "services/text/row.h"

// Between the messages of files.proto and the values of services/data, for scheduler and dexctl
// alike: what is said of a file is the same with a server and without. Pure.
namespace dex::data_view {

std::optional<text::RowFormat> row_format(v1::FileFormat format);  // unspecified: nullopt
v1::FileFormat format_view(std::optional<text::RowFormat> format);
text::Truncation truncation(v1::Hyperparameters::Truncation truncation);  // unspecified: kAuto
v1::Finding finding_view(const data::Finding& finding);
// What the store keeps with a file's record: format, statistics, counts, first findings.
v1::File report_view(const data::Report& report);

// Of both layers. `encoding`: what the rows were encoded with, where they were.
v1::FileStatistics statistics_view(const data::FileReport& report, const v1::RowEncoding& encoding);
v1::FileVerdict verdict_view(const data::FileReport& report);
// At most 32,768 of its tokens, and 512 KiB of text.
v1::PreviewedRow preview_view(const data::PreviewedRow& row, const text::Tokenizer* tokenizer);

}  // namespace dex::data_view
