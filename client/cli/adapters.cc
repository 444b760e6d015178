#include <CLI/CLI.hpp>
#include <filesystem>
#include <sstream>

#include "client/cli/aliases.h"
#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/names.h"
#include "client/cli/question.h"

namespace dex::cli {

namespace {

std::string replicas_text(const v1::Adapter& adapter) {
  int loaded = 0;
  for (const auto& replica : adapter.replicas())
    loaded += replica.state() == v1::Replica::STATE_LOADED;
  return std::to_string(loaded) + "/" + std::to_string(adapter.replicas_size());
}

// How much the branch does; "–" for an adapter that has none.
std::string branch_text(const v1::BranchEffect& effect) {
  const bool none = effect.verdict() == v1::BranchEffect::VERDICT_NOT_APPLICABLE ||
                    effect.verdict() == v1::BranchEffect::VERDICT_UNSPECIFIED;
  return none ? "–" : short_name(effect.verdict());
}

Table adapter_table(const std::vector<v1::Adapter>& adapters) {
  Table table = {{"ID", "LOADED", "CLASS", "SIZE", "BRANCH", "VERSION", "CREATED"}};
  for (const auto& adapter : adapters) {
    table.push_back({adapter.id(), replicas_text(adapter), adapter.artifact_class(),
                     human_bytes(static_cast<double>(adapter.bytes())),
                     branch_text(adapter.branch_effect()), adapter.version(),
                     local_time(adapter.create_time())});
  }
  return table;
}

int show(Context& context, const base::Result<v1::Adapter>& adapter) {
  if (!adapter.ok()) return context.output.failure(adapter.status());
  context.output.result(*adapter, adapter->id(), adapter_table({*adapter}));
  return kDone;
}

int list(Context& context, const v1::ListAdaptersRequest& request) {
  const auto reply = context.client.list_adapters(request);
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> ids;
  for (const auto& adapter : reply->adapters()) ids.push_back(adapter.id());
  context.output.list(*reply, ids,
                      adapter_table({reply->adapters().begin(), reply->adapters().end()}),
                      "no adapters yet; a job that succeeds makes one: dexctl jobs create --help");
  return kDone;
}

int delete_adapter(Context& context, const std::string& id, bool yes) {
  int code = kDone;
  if (!yes && !agreed(context, "Delete the adapter " + id + " and its files?", code)) return code;
  const auto deleted = context.client.delete_adapter(id);
  if (!deleted.ok()) return context.output.failure(deleted.status());
  context.output.result(*deleted, deleted->id(), {{"DELETED", deleted->id()}});
  return kDone;
}

int download_adapter(Context& context, const std::string& id, const std::string& folder) {
  const base::Status status = context.client.download_adapter(id, folder);
  if (!status.ok()) return context.output.failure(status);
  context.output.note("unpacked into " + folder + ", checksums agree");
  return kDone;
}

int import_adapter(Context& context, const std::string& folder,
                   const v1::ImportAdapterRequest::Header& header) {
  context.output.note("a worker holds every tensor against " + header.base_model() + " …");
  return show(context, context.client.import_adapter(folder, header));
}

std::string certificate_text(const v1::FoldCertificate& certificate) {
  std::ostringstream text;
  text << "largest logit difference to base and branch " << certificate.largest_logit_difference()
       << ", mean " << certificate.mean_logit_difference() << ", over " << certificate.tokens()
       << " tokens in fp32";
  if (!certificate.within_bound()) {
    text << ": above the 1e-4 that rounding explains; compare the folded model with the adapter "
            "before using it";
  }
  return text.str();
}

int export_adapter(Context& context, const v1::ExportAdapterRequest& request,
                   const std::string& folder) {
  std::error_code ignored;
  if (std::filesystem::exists(folder, ignored) && !std::filesystem::is_empty(folder, ignored)) {
    return context.output.failure(base::invalid_argument(
        "INVALID_FIELD", folder + " is there already and not empty; name a new folder"));
  }
  context.output.note("a worker folds it into its base …");
  const auto made = context.client.export_adapter(request);
  if (!made.ok()) return context.output.failure(made.status());
  const base::Status status = context.client.download_export(made->id(), folder);
  if (!status.ok()) return context.output.failure(status);
  context.output.note("unpacked into " + folder + ", checksums agree; " +
                      certificate_text(made->certificate()));
  context.output.result(
      *made, made->id(),
      {{"FOLDER", "DTYPE", "SIZE"},
       {folder, made->certificate().dtype(), human_bytes(static_cast<double>(made->bytes()))}});
  return kDone;
}

void add_import(CLI::App& noun, Action& action) {
  auto* verb =
      add_verb(noun, "import",
               "take in an adapter from elsewhere: a folder of ours, or a LoRA as PEFT "
               "saved it; a worker checks every tensor",
               "dexctl adapters import my-lora --model smollm2-135m-instruct\n"
               "dexctl adapters import my-adapter --model smollm2-135m-instruct --suffix night");
  auto folder = std::make_shared<std::string>();
  auto header = std::make_shared<v1::ImportAdapterRequest::Header>();
  auto base = std::make_shared<std::string>();
  auto suffix = std::make_shared<std::string>();
  verb->add_option("folder", *folder, "with adapter_config.json and adapter_model.safetensors")
      ->required();
  verb->add_option("--model,--base", *base, "base model that it was made for")->required();
  verb->add_option("--suffix", *suffix,
                   "part of its id, for people: letters, digits, '.', '_', '-'");
  verb->callback([&action, folder, header, base, suffix] {
    action = [=](Context& c) {
      header->set_base_model(*base);
      header->set_suffix(*suffix);
      return import_adapter(c, *folder, *header);
    };
  });
}

void add_export(CLI::App& noun, Action& action) {
  auto* verb = add_verb(noun, "export",
                        "make one plain model of an adapter and its base, which any program "
                        "loads; the adapter by itself, in PEFT's layout: adapters download",
                        "dexctl adapters export ft:… --folded --out my-model\n"
                        "dexctl adapters export ft:… --folded --dtype bf16 --out my-model");
  auto id = std::make_shared<std::string>();
  auto folder = std::make_shared<std::string>();
  auto folded = std::make_shared<bool>(false);
  auto dtype = std::make_shared<std::string>();
  verb->add_option("id", *id, "adapter id")->required();
  verb->add_flag("--folded", *folded, "fold it into the base's weights; must be given")->required();
  verb->add_option("--out", *folder, "where to; must not exist or be empty")->required();
  verb->add_option("--dtype", *dtype, "of the weights: fp32 or bf16 (default: the base's)")
      ->check(CLI::IsMember({"fp32", "bf16"}));
  verb->callback([&action, id, folder, folded, dtype] {
    action = [=](Context& c) {
      v1::ExportAdapterRequest request;
      request.set_adapter(*id);
      if (*folded) request.set_kind(v1::ExportAdapterRequest::KIND_FOLDED_SAFETENSORS);
      if (*dtype == "fp32") request.set_dtype(v1::ExportAdapterRequest::DTYPE_FP32);
      if (*dtype == "bf16") request.set_dtype(v1::ExportAdapterRequest::DTYPE_BF16);
      return export_adapter(c, request, *folder);
    };
  });
}

}  // namespace

void add_adapters(CLI::App& app, Action& action) {
  auto* noun = app.add_subcommand(
      "adapters",
      "published adapters: list, load, pin, unload, alias, download, import, export, delete");
  noun->require_subcommand(1);

  auto* verb = add_verb(*noun, "list", "the newest adapters", "dexctl adapters list");
  auto request = std::make_shared<v1::ListAdaptersRequest>();
  auto limit = std::make_shared<int>(20);
  verb->add_option("--limit", *limit, "how many, 1 to 1000");
  verb->callback([&action, request, limit] {
    action = [=](Context& c) {
      request->set_page_size(*limit);
      return list(c, *request);
    };
  });

  auto id = std::make_shared<std::string>();
  verb = add_verb(*noun, "get", "one adapter", "dexctl adapters get ft:… --output json");
  verb->add_option("id", *id, "adapter id or alias")->required();
  verb->callback(
      [&action, id] { action = [=](Context& c) { return show(c, c.client.get_adapter(*id)); }; });

  auto seconds = std::make_shared<double>(60);
  verb = add_verb(*noun, "load", "put an adapter into memory on every worker that serves its base",
                  "dexctl adapters load ft:…");
  verb->add_option("id", *id, "adapter id")->required();
  verb->add_option("--wait", *seconds, "seconds to wait for the workers, 0 to 600");
  auto pin = std::make_shared<bool>(false);
  verb->add_flag("--pin", *pin, "and let nobody unload it: adapters pin");
  auto no_effect = std::make_shared<bool>(false);
  verb->add_flag("--allow-no-effect", *no_effect, "also one that changes no answer");
  verb->callback([&action, id, seconds, pin, no_effect] {
    action = [=](Context& c) {
      return show(c, c.client.load_adapter(*id, *seconds, *pin, *no_effect));
    };
  });

  auto undo = std::make_shared<bool>(false);
  verb = add_verb(*noun, "pin", "keep an adapter in memory, and let nobody unload it",
                  "dexctl adapters pin ft:…\n"
                  "dexctl adapters pin ft:… --undo");
  verb->add_option("id", *id, "adapter id")->required();
  verb->add_flag("--undo", *undo, "it may be unloaded again; it stays where it is until then");
  verb->callback([&action, id, undo] {
    action = [=](Context& c) { return show(c, c.client.pin_adapter(*id, !*undo)); };
  });

  verb = add_verb(*noun, "unload", "take an adapter out of memory; running requests finish first",
                  "dexctl adapters unload ft:…");
  verb->add_option("id", *id, "adapter id")->required();
  verb->callback([&action, id] {
    action = [=](Context& c) { return show(c, c.client.unload_adapter(*id)); };
  });

  auto folder = std::make_shared<std::string>();
  verb = add_verb(*noun, "download", "write an adapter's files to a new folder and check them",
                  "dexctl adapters download ft:… my-adapter");
  verb->add_option("id", *id, "adapter id")->required();
  verb->add_option("folder", *folder, "where to; must not exist or be empty")->required();
  verb->callback([&action, id, folder] {
    action = [=](Context& c) { return download_adapter(c, *id, *folder); };
  });

  add_aliases(*noun, action);
  add_import(*noun, action);
  add_export(*noun, action);

  auto yes = std::make_shared<bool>(false);
  verb = add_verb(*noun, "delete", "forget an adapter and remove its files; unload it first",
                  "dexctl adapters delete ft:… --yes");
  verb->add_option("id", *id, "adapter id")->required();
  verb->add_flag("-y,--yes", *yes, "don't ask");
  verb->callback(
      [&action, id, yes] { action = [=](Context& c) { return delete_adapter(c, *id, *yes); }; });
}

}  // namespace dex::cli
