#pragma once

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/adaptation.h"

namespace dex::train {

// The trained tensors of a job in one flat fp32 buffer, and their gradients in a second of the same
// layout (performance.md §5): one norm clips, one call of the optimizer updates a group, one write
// is the checkpoint. The Adaptation's tensors become leaf views of the buffer; autograd adds into
// views of the gradient buffer. Pieces begin on 64-byte boundaries; the gaps are 0 and stay 0. Not
// thread-safe.
class FlatParameters {
 public:
  struct Piece {
    std::string name;  // artefact key without PEFT's prefix
    model::Group group;
    std::vector<int64_t> shape;
    int64_t offset = 0, size = 0;  // in elements
  };
  struct Range {
    int64_t offset = 0, size = 0;
  };

  // Copies every trainable's value into the buffer and puts a leaf view in its place. The
  // trainables come group by group, as model::trainables gives them; the Adaptation outlives this
  // object.
  explicit FlatParameters(const std::vector<model::Trainable>& trainables);

  const std::vector<Piece>& pieces() const { return pieces_; }
  Range range(model::Group group) const { return ranges_[static_cast<size_t>(group)]; }
  const at::Tensor& values() const { return values_; }        // [total] fp32
  const at::Tensor& gradients() const { return gradients_; }  // [total] fp32

  int64_t trained() const;  // elements, gaps not counted
  int64_t trained(model::Group group) const;
  int64_t added() const;  // of these, what the base model does not have

  void zero_gradients() { gradients_.zero_(); }
  double gradient_norm() const;  // global, over all groups together
  // Scales the gradients so that their norm is at most `limit`, given their norm (torch's
  // clip_grad_norm_).
  void clip(double norm, double limit);
  void copy_values_from(const at::Tensor& flat);  // [total]

  // A view of one piece in any buffer of this layout (values, moments).
  static at::Tensor view(const at::Tensor& flat, const Piece& piece);

 private:
  std::vector<Piece> pieces_;
  std::array<Range, model::kGroups> ranges_{};
  at::Tensor values_, gradients_;
};

}  // namespace dex::train
