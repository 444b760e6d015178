// protobuf ⇄ plain. This file includes no LibTorch header (performance.md §7).
#include "worker/serve/artefact_frames.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <stop_token>
#include <string>

#include "services/base/files.h"
#include "services/base/sha256.h"
#include "services/base/version.h"
#include "worker/model/memory_failure.h"
#include "worker/serve/stop_listener.h"

namespace dex::serve {
namespace {

namespace pb = dex::v1;
using internal::v1::ArtefactStart;
using internal::v1::AttemptResult;
using internal::v1::TrainerReport;

constexpr int64_t kArtefactFrame_ms = 10'000;
constexpr int kArtefactStopped = 16;  // exit code of jobs.md §6

void fill_lora(const model::LoraOptions& in, pb::LoraMethod& out) {
  out.set_r(static_cast<uint32_t>(in.r));
  out.set_alpha(in.alpha);
  out.set_use_rslora(in.rslora);
  for (const model::Linear target : in.targets)
    out.add_target_modules(std::string(model::name(target)));
}

void fill_adapter(const model::BottleneckAdapterOptions& in, pb::AdapterMethod& out) {
  out.set_size(static_cast<uint32_t>(in.size));
  out.set_placement(in.placement == model::Placement::kBoth ? pb::AdapterMethod::PLACEMENT_BOTH
                    : in.placement == model::Placement::kMlp
                        ? pb::AdapterMethod::PLACEMENT_MLP
                        : pb::AdapterMethod::PLACEMENT_ATTENTION);
  out.set_activation(in.activation == model::AdapterActivation::kGelu
                         ? pb::AdapterMethod::ACTIVATION_GELU
                         : pb::AdapterMethod::ACTIVATION_RELU);
}

pb::DexMethod::Form form_message(model::Form form) {
  switch (form) {
    case model::Form::kPaper:
      return pb::DexMethod::FORM_PAPER;
    case model::Form::kHeadMean:
      return pb::DexMethod::FORM_HEAD_MEAN;
    case model::Form::kPrefixMean:
      return pb::DexMethod::FORM_PREFIX_MEAN;
    case model::Form::kUniformMap:
      return pb::DexMethod::FORM_UNIFORM_MAP;
    case model::Form::kNone:
      break;
  }
  return pb::DexMethod::FORM_UNSPECIFIED;
}

pb::DexMethod::Projection projection_message(model::Projection projection) {
  switch (projection) {
    case model::Projection::kShared:
      return pb::DexMethod::PROJECTION_SHARED;
    case model::Projection::kPerHead:
      return pb::DexMethod::PROJECTION_PER_HEAD;
    case model::Projection::kDense:
      return pb::DexMethod::PROJECTION_DENSE;
    case model::Projection::kBottleneck:
      return pb::DexMethod::PROJECTION_BOTTLENECK;
  }
  return pb::DexMethod::PROJECTION_UNSPECIFIED;
}

void fill_bottleneck(const model::DexOptions& in, pb::DexMethod::Bottleneck& out) {
  using Bottleneck = pb::DexMethod::Bottleneck;
  out.set_width_ratio(in.width_ratio);
  out.set_scope(in.bottleneck_scope == model::BottleneckScope::kShared ? Bottleneck::SCOPE_SHARED
                : in.bottleneck_scope == model::BottleneckScope::kPerHead
                    ? Bottleneck::SCOPE_PER_HEAD
                    : Bottleneck::SCOPE_DENSE);
  out.set_activation(
      in.bottleneck_activation == model::Activation::kSilu   ? Bottleneck::ACTIVATION_SILU
      : in.bottleneck_activation == model::Activation::kGelu ? Bottleneck::ACTIVATION_GELU
                                                             : Bottleneck::ACTIVATION_NONE);
}

void fill_dex(const model::DexOptions& in, pb::DexMethod& out) {
  out.set_form(form_message(in.form));
  out.set_sign(in.sign == model::Sign::kMinus ? pb::DexMethod::SIGN_MINUS
                                              : pb::DexMethod::SIGN_PLUS);
  out.set_train(in.train == model::Train::kDexOnly   ? pb::DexMethod::TRAIN_DEX_ONLY
                : in.train == model::Train::kLoraDex ? pb::DexMethod::TRAIN_LORA_DEX
                                                     : pb::DexMethod::TRAIN_KVO_DEX);
  out.set_allow_large_projection(true);  // the branch is there, whatever its size
  if (in.has_projection()) {
    out.set_projection(projection_message(in.projection));
    if (in.projection == model::Projection::kBottleneck)
      fill_bottleneck(in, *out.mutable_bottleneck());
  }
  if (in.has_lora()) fill_lora(in.lora, *out.mutable_lora());
  out.mutable_head_selection()->set_soft_floor(in.soft_floor);
  out.mutable_lambda()->set_schedule(in.learns_lambda() ? pb::Lambda::SCHEDULE_LEARNED
                                                        : pb::Lambda::SCHEDULE_CONSTANT);
}

void fill_imported(const ImportedAdapter& in, const ArtefactStart& start, AttemptResult& out) {
  auto& adapter = *out.mutable_adapter();
  const model::DexOptions& options = in.options;
  adapter.set_base_model(start.base_model_name());
  adapter.set_base_weights_sha256(in.base_weights_sha256);
  adapter.set_tokenizer_sha256(in.tokenizer_sha256);
  adapter.set_chat_template_sha256(in.chat_template_sha256);
  adapter.set_method(std::string(model::method_name(options.train)));
  adapter.set_form(std::string(model::name(options.form)));
  if (options.has_projection())
    adapter.set_projection(std::string(model::name(options.projection)));
  adapter.set_train(std::string(model::name(options.train)));
  adapter.set_artifact_class(in.artifact_class);
  // Nothing of a branch's effect was measured here, and what the files say of it nobody has
  // checked.
  if (!options.has_branch())
    out.mutable_branch_effect()->set_verdict(pb::BranchEffect::VERDICT_NOT_APPLICABLE);
  for (const double lambda : in.lambda)
    out.mutable_branch_effect()->add_per_layer()->set_lambda(lambda);
  if (in.regular) *out.mutable_made_as() = made_as(in);
}

void fill_folded(const FoldedModel& in, AttemptResult& out) {
  auto& certificate = *out.mutable_certificate();
  certificate.set_largest_logit_difference(in.largest_logit_difference);
  certificate.set_mean_logit_difference(in.mean_logit_difference);
  certificate.set_tokens(in.tokens);
  certificate.set_within_bound(in.within_bound);
  certificate.set_dtype(in.dtype);
  certificate.set_base_weights_sha256(in.base_weights_sha256);
}

void add_size(const std::filesystem::path& folder, AttemptResult& out) {
  const auto hash = base::sha256_file(folder / "checksums.json");
  if (!hash.ok()) throw ArtefactFailure(ArtefactFailure::Kind::kDisk, hash.status().message());
  int64_t bytes = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    bytes += static_cast<int64_t>(entry.file_size());
  out.set_uri(folder.string());
  out.set_manifest_sha256(*hash);
  out.set_bytes(bytes);
}

AttemptResult make_artefact(const ArtefactStart& start) {
  const std::filesystem::path out = std::filesystem::path(start.attempt_dir()) / "final";
  AttemptResult result;
  if (start.has_adapter_import()) {
    fill_imported(import_adapter({.model = start.model_dir(),
                                  .model_name = start.base_model_name(),
                                  .weights_sha256 = start.base_weights_sha256(),
                                  .uploaded = start.adapter_import().path(),
                                  .out = out}),
                  start, result);
  } else {
    const auto& adapter = start.adapter_export().adapter();
    fill_folded(export_folded_adapter({.model = start.model_dir(),
                                       .weights_sha256 = start.base_weights_sha256(),
                                       .adapter = adapter.path(),
                                       .content_sha256 = adapter.content_sha256(),
                                       .dtype = start.adapter_export().dtype(),
                                       .out = out}),
                result);
  }
  add_size(out, result);
  return result;
}

struct ArtefactEnd {
  int exit;
  internal::v1::Outcome outcome;
  const char* code;
};

// Codes of jobs.md §6; not_foldable is of exports alone.
ArtefactEnd artefact_end(ArtefactFailure::Kind kind) {
  using Kind = ArtefactFailure::Kind;
  switch (kind) {
    case Kind::kAdapter:
      return {10, internal::v1::OUTCOME_FAIL_FINAL, "adapter_mismatch"};
    case Kind::kNotFoldable:
      return {10, internal::v1::OUTCOME_FAIL_FINAL, "not_foldable"};
    case Kind::kBase:
      return {17, internal::v1::OUTCOME_RELEASE, "internal"};
    case Kind::kDiskFull:
      return {14, internal::v1::OUTCOME_DISK_FULL, "disk_full"};
    case Kind::kQuota:
      return {15, internal::v1::OUTCOME_FAIL_FINAL, "quota_exceeded"};
    case Kind::kDisk:
      break;
  }
  return {18, internal::v1::OUTCOME_FAIL_RETRY, "internal"};
}

int fail_with(const ArtefactEnd& end, const std::string& message,
              TrainerReport::TrainerResult& out) {
  out.set_outcome(end.outcome);
  out.set_code(end.code);
  out.set_message(message);
  return end.exit;
}

int make_and_tell(const ArtefactStart& start, TrainerReport::TrainerResult& out) {
  try {
    *out.mutable_result() = make_artefact(start);
    out.set_outcome(internal::v1::OUTCOME_SUCCESS);
    return 0;
  } catch (const ArtefactFailure& failure) {
    return fail_with(artefact_end(failure.kind()), failure.what(), out);
  } catch (const std::exception& error) {
    if (model::is_out_of_memory(error)) {
      return fail_with({13, internal::v1::OUTCOME_OOM, "out_of_memory"},
                       "there is not enough memory for the model and this adapter", out);
    }
    return fail_with({18, internal::v1::OUTCOME_FAIL_RETRY, "internal"}, error.what(), out);
  }
}

// The same, unless a stop comes: the agent knows what it ordered, so that needs no frame.
int make_unless_stopped(const ArtefactStart& start, base::FrameChannel& channel,
                        const base::StopSignals& signals, TrainerReport::TrainerResult& out) {
  const StopListener listener(channel, signals);
  const std::stop_callback leave(listener.token(), [] { ::_exit(kArtefactStopped); });
  return make_and_tell(start, out);
}

}  // namespace

pb::FineTuningJobSpec made_as(const ImportedAdapter& adapter) {
  const model::DexOptions& options = adapter.options;
  pb::FineTuningJobSpec out;
  if (options.first_layer > 0) {
    out.mutable_hyperparameters()->set_first_layer(static_cast<uint32_t>(options.first_layer));
  }
  if (options.train == model::Train::kKvoOnly) {
    out.mutable_kvo_only();
  } else if (options.train == model::Train::kLora) {
    fill_lora(options.lora, *out.mutable_lora());
  } else if (options.train == model::Train::kAdapter) {
    fill_adapter(options.adapter, *out.mutable_adapter());
  } else {
    fill_dex(options, *out.mutable_dex());
  }
  return out;
}

int run_artefact_frames(const ArtefactStart& start, base::FrameChannel& channel,
                        const base::StopSignals& signals) {
  TrainerReport ready;
  ready.mutable_ready()->set_version(std::string(base::version()));
  ready.mutable_ready()->set_device("cpu");
  (void)channel.write(ready.SerializeAsString(), kArtefactFrame_ms).ok();
  TrainerReport report;
  const int exit = make_unless_stopped(start, channel, signals, *report.mutable_result());
  if (exit != 0)
    spdlog::info("job {} ends: {} {}", start.job_id(), report.result().code(),
                 report.result().message());
  // An agent that is gone reads the exit code.
  (void)channel.write(report.SerializeAsString(), kArtefactFrame_ms).ok();
  return exit;
}

}  // namespace dex::serve
