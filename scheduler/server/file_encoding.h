#pragma once

#include "dex/v1/files.pb.h"
#include "dex/v1/models.pb.h"
#include "services/base/status.h"
#include "services/text/row_encoder.h"

namespace dex::server {

// How rows of `file` become sequences for `model`, with every field set: what `asked` leaves open
// is what core::resolve makes of a job with that preset, model and file, so that nothing is
// resolved twice in two ways. Errors name fields of `asked` as "encoding.max_seq_length". Pure.
base::Result<v1::RowEncoding> resolve_encoding(const v1::RowEncoding& asked, const v1::Model& model,
                                               const v1::File& file);

// The encoder of a trainer with such a job: `encoding` has every field.
text::RowEncoder::Options encoder_options(const v1::RowEncoding& encoding, const v1::Model& model);

}  // namespace dex::server
