#include "worker/train/rank_link.h"

#include <ATen/ATen.h>

#include <string>

#include "worker/train/failure.h"

namespace dex::train {
namespace {

// An order is one fp64 vector, of one length so that all ranks know it: kind, numbers, and behind
// them the masks [L, H]. fp64 holds all of these exactly.
enum Kind { kState, kBegin, kApply, kEnd };
constexpr int64_t kNumbers = 8;  // behind the kind
static_assert(model::kGroups + 1 <= kNumbers);

// Heads a layer; 0: no layer has a mask.
int64_t mask_width(const model::Adaptation& adaptation) {
  for (const auto& layer : adaptation.layers) {
    if (layer.mask.defined()) return layer.mask.numel();
  }
  return 0;
}

at::Tensor message_for(const model::Adaptation& adaptation) {
  const auto layers = static_cast<int64_t>(adaptation.layers.size());
  return at::zeros({1 + kNumbers + layers * mask_width(adaptation)}, at::kDouble);
}

double* numbers_of(const at::Tensor& message) {
  return message.data_ptr<double>() + 1;
}

at::Tensor mask_of(const at::Tensor& message, int64_t layer, int64_t heads) {
  return message.narrow(0, 1 + kNumbers + layer * heads, heads);
}

std::string text_of(const RankPlan& plan) {
  return std::to_string(plan.updates) + " updates of " + std::to_string(plan.batch_size) +
         " sequences, " + std::to_string(plan.micro_batch_size) + " at a time, on " +
         std::to_string(plan.values) + " values";
}

}  // namespace

RankLeader::RankLeader(ProcessGroup& group, const model::Adaptation& adaptation,
                       const FlatParameters& parameters, const AdamW& optimizer,
                       const RankPlan& plan)
    : group_(group),
      adaptation_(adaptation),
      parameters_(parameters),
      optimizer_(optimizer),
      plan_(plan) {}

void RankLeader::share_state() {
  const at::Tensor message = message_for(adaptation_);
  double* out = numbers_of(message);
  message[0] = static_cast<double>(kState);
  out[0] = static_cast<double>(optimizer_.updates());
  out[1] = static_cast<double>(plan_.updates);
  out[2] = plan_.batch_size;
  out[3] = plan_.micro_batch_size;
  out[4] = static_cast<double>(plan_.values);
  group_.broadcast(message);
  group_.broadcast(parameters_.values());
  group_.broadcast(optimizer_.first_moment());
  group_.broadcast(optimizer_.second_moment());
}

void RankLeader::begin(int64_t step) {
  const at::Tensor message = message_for(adaptation_);
  message[0] = static_cast<double>(kBegin);
  numbers_of(message)[0] = static_cast<double>(step);
  const int64_t heads = mask_width(adaptation_);
  for (size_t l = 0; l < adaptation_.layers.size(); ++l) {
    const at::Tensor& mask = adaptation_.layers[l].mask;
    if (mask.defined()) mask_of(message, static_cast<int64_t>(l), heads).copy_(mask);
  }
  group_.broadcast(message);
}

void RankLeader::apply(double norm, const AdamW::Rates& rates) {
  const at::Tensor message = message_for(adaptation_);
  message[0] = static_cast<double>(kApply);
  double* out = numbers_of(message);
  *out++ = norm;
  for (const double rate : rates) *out++ = rate;
  group_.broadcast(message);
}

void RankLeader::end() {
  const at::Tensor message = message_for(adaptation_);
  message[0] = static_cast<double>(kEnd);
  group_.broadcast(message);
}

void RankFollower::run() {
  const at::Tensor message = message_for(parts_.adaptation);
  while (true) {
    parts_.group.broadcast(message);
    const double* in = numbers_of(message);
    switch (static_cast<Kind>(message[0].item<double>())) {
      case kState:
        take_state(message);
        break;
      case kBegin:
        update(message);
        break;
      case kApply: {
        Updater::Gradients gradients;
        gradients.norm = in[0];
        AdamW::Rates rates{};
        for (size_t group = 0; group < rates.size(); ++group) rates[group] = in[1 + group];
        parts_.updater.apply(gradients, rates);
        break;
      }
      case kEnd:
        return;
    }
  }
}

void RankFollower::take_state(const at::Tensor& message) {
  const double* in = numbers_of(message);
  const RankPlan leader{static_cast<int64_t>(in[1]), static_cast<int32_t>(in[2]),
                        static_cast<int32_t>(in[3]), static_cast<int64_t>(in[4])};
  if (!(leader == parts_.plan)) {
    throw Failure(Exit::kRetryable, "internal",
                  "rank " + std::to_string(parts_.group.rank()) + " plans " + text_of(parts_.plan) +
                      "; rank 0 plans " + text_of(leader) +
                      ": all ranks must be given the same spec and files",
                  "ranks");
  }
  parts_.group.broadcast(parts_.parameters.values());
  at::Tensor first = at::empty_like(parts_.optimizer.first_moment());
  at::Tensor second = at::empty_like(first);
  parts_.group.broadcast(first);
  parts_.group.broadcast(second);
  parts_.optimizer.restore(first, second, static_cast<int64_t>(in[0]));
}

void RankFollower::update(const at::Tensor& message) {
  const auto step = static_cast<int64_t>(numbers_of(message)[0]);
  model::set_lambda(parts_.adaptation, step);
  const int64_t heads = mask_width(parts_.adaptation);
  const auto layers = static_cast<int64_t>(parts_.adaptation.layers.size());
  for (int64_t l = parts_.first_layer; heads > 0 && l < layers; ++l) {
    parts_.adaptation.layers[static_cast<size_t>(l)].mask =
        mask_of(message, l, heads).to(at::kFloat, /*non_blocking=*/false, /*copy=*/true);
  }
  const DataPlan::Update data = parts_.data.update(step);
  parts_.updater.accumulate(step, data.packs, parts_.examples);
}

}  // namespace dex::train
