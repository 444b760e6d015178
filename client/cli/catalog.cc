#include <CLI/CLI.hpp>
#include <filesystem>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
#include "client/cli/model_limits.h"
#include "client/cli/model_list.h"
#include "services/base/version.h"

namespace dex::cli {

namespace {

Table model_table(const std::vector<v1::Model>& models) {
  Table table = {
      {"NAME", "FAMILY", "PARAMETERS", "LAYERS × HEADS", "CONTEXT", "WORKERS", "LICENSE", "TITLE"}};
  for (const auto& model : models) {
    table.push_back({model.name(), model.family(),
                     human_count(static_cast<double>(model.parameters())),
                     std::to_string(model.layers()) + " × " + std::to_string(model.query_heads()),
                     std::to_string(model.context_length()), std::to_string(model.workers()),
                     model.license(), model.display_name()});
  }
  return table;
}

int list_models(Context& context) {
  const auto reply = context.client.list_models();
  if (!reply.ok()) return context.output.failure(reply.status());
  std::vector<std::string> names;
  for (const auto& model : reply->models()) names.push_back(model.name());
  context.output.list(*reply, names, model_table({reply->models().begin(), reply->models().end()}),
                      "no base models; the server's models.json lists none");
  return kDone;
}

int show_model(Context& context, const std::string& name) {
  const auto model = context.client.get_model(name);
  if (!model.ok()) return context.output.failure(model.status());
  context.output.result(*model, model->name(), model_table({*model}));
  return kDone;
}

struct NewModelFlags {
  std::string name, list, adapter, folder, title, license;
};

// A whole model that a job has published, in a folder beside the list.
base::Result<std::filesystem::path> fetched_model(Context& context, const NewModelFlags& flags,
                                                  const v1::Adapter& adapter) {
  if (adapter.artifact_class() != "MODEL") {
    return base::invalid_argument(
        "INVALID_FIELD", adapter.id() + " is an adapter (class " + adapter.artifact_class() +
                             "), which is served beside its base. To make a model of it: dexctl "
                             "adapters export " +
                             adapter.id() + " --folded --out DIR, then dexctl models add " +
                             flags.name + " --folder DIR --list " + flags.list);
  }
  const auto folder = std::filesystem::absolute(flags.list).parent_path() / flags.name;
  DEX_RETURN_IF_ERROR(context.client.download_adapter(adapter.id(), folder));
  return folder;
}

base::Result<v1::Model> new_model(Context& context, const NewModelFlags& flags) {
  if (flags.adapter.empty() && flags.folder.empty())
    return base::invalid_argument("MISSING_FIELD", "name the model: --adapter ID or --folder DIR");
  DEX_RETURN_IF_ERROR(check_new_model(flags.list, flags.name));
  std::filesystem::path folder = flags.folder;
  v1::Model like;
  if (!flags.adapter.empty()) {
    DEX_ASSIGN_OR_RETURN(const auto adapter, context.client.get_adapter(flags.adapter));
    DEX_ASSIGN_OR_RETURN(like, context.client.get_model(adapter.base_model()));
    like.set_display_name(like.display_name() + ", fine-tuned (" + adapter.method() + ")");
    DEX_ASSIGN_OR_RETURN(folder, fetched_model(context, flags, adapter));
  }
  if (!flags.title.empty()) like.set_display_name(flags.title);
  if (!flags.license.empty()) like.set_license(flags.license);
  DEX_ASSIGN_OR_RETURN(auto model, described_model(folder, like));
  model.set_name(flags.name);
  DEX_RETURN_IF_ERROR(add_model(flags.list, model, folder));
  context.output.note("added " + flags.name + " (" + folder.string() + ") to " + flags.list +
                      "; restart dexd, or scheduler and workers, to serve it");
  return model;
}

int add_new_model(Context& context, const NewModelFlags& flags) {
  const auto model = new_model(context, flags);
  if (!model.ok()) return context.output.failure(model.status());
  context.output.result(
      *model, model->name(),
      {{"NAME", "FAMILY", "LICENSE", "TITLE"},
       {model->name(), model->family(), model->license(), model->display_name()}});
  return kDone;
}

void add_models_add(CLI::App& models, Action& action) {
  auto* verb =
      add_verb(models, "add",
               "put a model into the operator's list on this machine: one that a job of "
               "method full, diff or train full+dex has published, or a folder. It is "
               "served, trained and evaluated as a base model of its own from the next "
               "start on",
               "dexctl models add my-model --adapter ft:… --list .deps/models/models.json\n"
               "dexctl models add my-folded --folder my-model --list .deps/models/models.json");
  auto flags = std::make_shared<NewModelFlags>();
  verb->add_option("name", flags->name, "its name: a-z, 0-9, '.' and '-'")->required();
  verb->add_option("--list", flags->list, "the list that dexd, scheduler and workers read")
      ->required()
      ->type_name("FILE");
  auto* adapter = verb->add_option("--adapter", flags->adapter,
                                   "published model to download into a folder beside the list");
  auto* folder = verb->add_option("--folder", flags->folder,
                                  "Hugging Face folder that is here, such as a folded export");
  adapter->excludes(folder);
  verb->add_option("--title", flags->title, "for people (default: of the base it was made from)");
  verb->add_option("--license", flags->license, "default: that of the base it was made from");
  verb->callback(
      [&action, flags] { action = [=](Context& c) { return add_new_model(c, *flags); }; });
}

int list_presets(Context& context) {
  const auto reply = context.client.list_presets();
  if (!reply.ok()) return context.output.failure(reply.status());
  Table table = {{"NAME", "VERSION", "WHAT"}};
  std::vector<std::string> names;
  for (const auto& preset : reply->presets()) {
    names.push_back(preset.name());
    table.push_back({preset.name(), preset.version(), preset.summary()});
  }
  context.output.list(*reply, names, table, "no presets");
  return kDone;
}

int show_preset(Context& context, const std::string& name, const std::string& model) {
  const auto preset = context.client.get_preset(name, model);
  if (!preset.ok()) return context.output.failure(preset.status());
  context.output.result(*preset, preset->name(), value_table(preset->spec(), preset->sources()));
  if (context.output.format() != Format::kTable) return kDone;
  context.output.note(preset->version() + ": " + preset->summary());
  if (!preset->paper_method())
    context.output.note("this is not the paper's method; preset \"paper\" is");
  return kDone;
}

int show_version(Context& context) {
  const auto reply = context.client.capabilities();
  if (!reply.ok()) return context.output.failure(reply.status());
  context.output.result(*reply, reply->version(),
                        {{"", "VERSION", "COMMIT"},
                         {"server", reply->version(), reply->commit()},
                         {"dexctl", std::string(base::version()), std::string(base::commit())}});
  return kDone;
}

}  // namespace

CLI::App* add_verb(CLI::App& noun, const std::string& name, const std::string& what,
                   const std::string& examples) {
  auto* verb = noun.add_subcommand(name, what);
  std::string lines;
  for (const char c : examples) lines += c == '\n' ? "\n  " : std::string(1, c);
  const bool several = examples.find('\n') != std::string::npos;
  verb->footer((several ? "Examples:\n  " : "Example:\n  ") + lines +
               "\n\nMore options (--server, --output json, --timeout …): dexctl --help");
  return verb;
}

void add_catalog(CLI::App& app, Action& action) {
  auto* models = app.add_subcommand("models", "base models: list, show, limits, add");
  models->require_subcommand(1);
  auto* verb = add_verb(*models, "list", "what can be adapted here", "dexctl models list");
  verb->callback([&action] { action = list_models; });
  auto name = std::make_shared<std::string>();
  verb = add_verb(*models, "show", "one base model", "dexctl models show smollm2-135m-instruct");
  verb->add_option("name", *name, "model name")->required();
  verb->callback([&action, name] { action = [=](Context& c) { return show_model(c, *name); }; });

  add_model_limits(*models, action);
  add_models_add(*models, action);

  auto* presets = app.add_subcommand("presets", "ready settings for a domain: list, show");
  presets->require_subcommand(1);
  verb = add_verb(*presets, "list", "all presets in a sentence each", "dexctl presets list");
  verb->callback([&action] { action = list_presets; });
  auto model = std::make_shared<std::string>();
  verb = add_verb(*presets, "show", "a preset's values and where each comes from",
                  "dexctl presets show code --model smollm2-135m-instruct");
  verb->add_option("name", *name, "preset name")->required();
  verb->add_option("--model", *model, "the values that a job on this model would start from");
  verb->callback([&action, name, model] {
    action = [=](Context& c) { return show_preset(c, *name, *model); };
  });

  verb = add_verb(app, "version", "versions of the server and of dexctl", "dexctl version");
  verb->callback([&action] { action = show_version; });
}

}  // namespace dex::cli
