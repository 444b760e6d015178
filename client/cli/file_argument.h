#pragma once

#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// A path in place of a file id is uploaded, with its findings shown, unless the server has a good
// file of the same bytes already; the id comes back. Anything that is no path comes back as it is.
// FILE_INVALID when the server refuses the file.
base::Result<std::string> file_argument(Context& context, const std::string& id_or_path,
                                        v1::FilePurpose purpose = v1::FILE_PURPOSE_FINE_TUNE);

}  // namespace dex::cli
