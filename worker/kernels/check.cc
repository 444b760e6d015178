#include "worker/kernels/check.h"

#include <stdexcept>

namespace dex::kernels {

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string text = c10::toString(tensor.scalar_type());
  text += " [";
  for (int64_t i = 0; i < tensor.dim(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(tensor.size(i));
  }
  return text + "]";
}

void check(bool good, std::string_view op, std::string_view what, const at::Tensor& got) {
  if (good) return;
  throw std::runtime_error("[" + std::string(op) + "] " + std::string(what) + ", got " +
                           describe(got));
}

}  // namespace dex::kernels
