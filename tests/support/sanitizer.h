#pragma once

namespace dex::support {

// Whether this is built with a sanitizer that takes several times the time and memory (deploy/check
// --asan, --tsan): limits of either then say nothing.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace dex::support
