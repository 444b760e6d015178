#include "worker/train/flat_parameters.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <stdexcept>

namespace dex::train {
namespace {

constexpr int64_t kAlignment = 16;  // floats: 64 bytes, what LibTorch's own allocations have

int64_t aligned(int64_t offset) {
  return (offset + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

at::Tensor FlatParameters::view(const at::Tensor& flat, const Piece& piece) {
  return flat.narrow(0, piece.offset, piece.size).view(piece.shape);
}

FlatParameters::FlatParameters(const std::vector<model::Trainable>& trainables) {
  int64_t offset = 0;
  for (const model::Trainable& trainable : trainables) {
    if (!pieces_.empty() && trainable.group < pieces_.back().group) {
      throw std::runtime_error("[FlatParameters] " + trainable.name +
                               " is out of its group's order");
    }
    Range& range = ranges_[static_cast<size_t>(trainable.group)];
    if (range.size == 0) range.offset = offset;
    pieces_.push_back({trainable.name, trainable.group, trainable.tensor->sizes().vec(), offset,
                       trainable.tensor->numel()});
    offset = aligned(offset + pieces_.back().size);
    range.size = offset - range.offset;
  }
  values_ = at::zeros({offset}, at::kFloat);
  gradients_ = at::zeros({offset}, at::kFloat);
  for (size_t i = 0; i < trainables.size(); ++i) {
    at::Tensor place = view(values_, pieces_[i]);
    place.copy_(*trainables[i].tensor);
    at::Tensor leaf = place.detach();
    leaf.requires_grad_(true);
    leaf.mutable_grad() = view(gradients_, pieces_[i]);
    *trainables[i].tensor = leaf;
  }
}

int64_t FlatParameters::trained() const {
  int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.size;
  return count;
}

int64_t FlatParameters::trained(model::Group group) const {
  int64_t count = 0;
  for (const Piece& piece : pieces_) count += piece.group == group ? piece.size : 0;
  return count;
}

int64_t FlatParameters::added() const {
  return trained() - trained(model::Group::kBase);
}

double FlatParameters::gradient_norm() const {
  return at::linalg_vector_norm(gradients_, 2).item<double>();
}

void FlatParameters::clip(double norm, double limit) {
  const double factor = limit / (norm + 1e-6);
  if (factor < 1) gradients_.mul_(factor);
}

void FlatParameters::copy_values_from(const at::Tensor& flat) {
  const at::NoGradGuard no_grad;
  values_.copy_(flat);
}

}  // namespace dex::train
