#pragma once

#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// What becomes of a path whose bytes the server does not have. A dry run changes nothing on the
// server, and the server can't check a request without its file: then the user has to upload it.
enum class Upload { kAllowed, kRefused };

// A path in place of a file id is uploaded, with its findings shown, unless the server has a good
// file of the same bytes already; the id comes back. Anything that is no path comes back as it is.
// FILE_INVALID when the server refuses the file, FILE_NOT_READY when it would have to be uploaded
// and must not.
base::Result<std::string> file_argument(Context& context, const std::string& id_or_path,
                                        v1::FilePurpose purpose = v1::FILE_PURPOSE_FINE_TUNE,
                                        Upload upload = Upload::kAllowed);

}  // namespace dex::cli
