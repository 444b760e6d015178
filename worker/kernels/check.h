#pragma once

#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace dex::kernels {

// Throws "[op] what, got float [3, 4]" unless `good`: how this room refuses an argument.
void check(bool good, std::string_view op, std::string_view what, const at::Tensor& got);

// "float [3, 4]", or "undefined".
std::string describe(const at::Tensor& tensor);

}  // namespace dex::kernels
