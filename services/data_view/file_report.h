#pragma once

#include <optional>

#include "dex/v1/files.pb.h"
#include "services/data/validator.h"
#include "services/text/row.h"

// Between the messages of files.proto and the validator's values. Pure.
namespace dex::server {

std::optional<text::RowFormat> row_format(v1::FileFormat format);  // unspecified: nullopt
v1::FileFormat format_view(std::optional<text::RowFormat> format);
v1::Finding finding_view(const data::Finding& finding);
// What the store keeps with a file's record: format, statistics, counts, first findings.
v1::File report_view(const data::Report& report);

}  // namespace dex::server
