#pragma once

#include <string>
#include <vector>

#include "dex/v1/finetuning.pb.h"
#include "scheduler/core/check_spec.h"
#include "scheduler/core/fields.h"

namespace dex::core {

// Makes the form's parts agree after preset and user's fields are merged (method.md §3.1, §3.2,
// §3.5), so that the effective spec says what is computed:
//   form DENSE, or HEAD_MEAN over projection DENSE → PAPER, projection DENSE, sign PLUS
//   a form that the user chose without a sign → the form's default sign
//   start LITERAL → w_d_init LINEAR
// What changed has source AUTO and, for a changed form, a warning "form_resolved: …". Reports
// user's values that contradict (CONFLICTING_FIELDS) and leaves them as they are. An effective spec
// is already so: nothing happens to it.
std::vector<Problem> resolve_form(dex::v1::DexMethod& dex, Sources& sources,
                                  std::vector<std::string>& warnings);

}  // namespace dex::core
