#include <CLI/CLI.hpp>

#include "client/cli/command.h"
#include "client/cli/exit_code.h"
#include "client/cli/job_view.h"
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
                   const std::string& example) {
  auto* verb = noun.add_subcommand(name, what);
  verb->footer("Example:\n  " + example +
               "\n\nMore options (--server, --output json, --timeout …): dexctl --help");
  return verb;
}

void add_catalog(CLI::App& app, Action& action) {
  auto* models = app.add_subcommand("models", "base models: list, show");
  models->require_subcommand(1);
  auto* verb = add_verb(*models, "list", "what can be adapted here", "dexctl models list");
  verb->callback([&action] { action = list_models; });
  auto name = std::make_shared<std::string>();
  verb = add_verb(*models, "show", "one base model", "dexctl models show smollm2-135m-instruct");
  verb->add_option("name", *name, "model name")->required();
  verb->callback([&action, name] { action = [=](Context& c) { return show_model(c, *name); }; });

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
