#include "client/cli/known_ids.h"

#include <CLI/CLI.hpp>
#include <map>

namespace dex::cli {

namespace {

constexpr int kNewest = 100;

// The ids of a list's rows, each by its field `id` or `name`.
template <typename Reply, typename Rows>
std::vector<std::string> ids_of(const base::Result<Reply>& reply, const Rows& rows) {
  std::vector<std::string> ids;
  if (!reply.ok()) return ids;
  for (const auto& row : rows(*reply)) {
    if constexpr (requires { row.id(); })
      ids.push_back(row.id());
    else
      ids.push_back(row.name());
  }
  return ids;
}

template <typename Request>
Request newest() {
  Request request;
  request.set_page_size(kNewest);
  return request;
}

// `jobs` of `dexctl jobs get`; of a command without a noun its own name.
std::string noun_of(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  const bool has_noun = parent != nullptr && parent->get_parent() != nullptr;
  return has_noun ? parent->get_name() : command.get_name();
}

IdKind argument_kind(const std::string& noun, const std::string& name) {
  static const std::map<std::pair<std::string, std::string>, IdKind> kinds = {
      {{"files", "id"}, IdKind::kFile},
      {{"jobs", "id"}, IdKind::kJob},
      {{"checkpoints", "job"}, IdKind::kJob},
      {{"evaluations", "id"}, IdKind::kEvaluation},
      {{"evaluations", "a"}, IdKind::kEvaluation},
      {{"evaluations", "b"}, IdKind::kEvaluation},
      {{"adapters", "id"}, IdKind::kAdapter},
      {{"models", "name"}, IdKind::kModel},
      {{"presets", "name"}, IdKind::kPreset},
      {{"workers", "id"}, IdKind::kWorker},
      {{"generate", "model"}, IdKind::kModelOrAdapter},
      {{"chat", "model"}, IdKind::kModelOrAdapter},
      {{"compare", "models"}, IdKind::kModelOrAdapter}};
  const auto found = kinds.find({noun, name});
  return found == kinds.end() ? IdKind::kNone : found->second;
}

IdKind option_kind(const std::string& name) {
  static const std::map<std::string, IdKind> kinds = {
      {"model", IdKind::kModelOrAdapter}, {"base", IdKind::kModel},
      {"adapter", IdKind::kAdapter},      {"preset", IdKind::kPreset},
      {"training-file", IdKind::kFile},   {"validation-file", IdKind::kFile}};
  const auto found = kinds.find(name);
  return found == kinds.end() ? IdKind::kNone : found->second;
}

}  // namespace

IdKind id_kind(const CLI::App& command, const CLI::Option& option) {
  if (!option.nonpositional()) return argument_kind(noun_of(command), option.get_name(true));
  return option.get_lnames().empty() ? IdKind::kNone : option_kind(option.get_lnames().front());
}

IdKind id_kind(std::string_view resource_type) {
  static const std::map<std::string_view, IdKind> kinds = {{"file", IdKind::kFile},
                                                           {"job", IdKind::kJob},
                                                           {"evaluation", IdKind::kEvaluation},
                                                           {"adapter", IdKind::kAdapter},
                                                           {"model", IdKind::kModelOrAdapter},
                                                           {"preset", IdKind::kPreset},
                                                           {"worker", IdKind::kWorker}};
  const auto found = kinds.find(resource_type);
  return found == kinds.end() ? IdKind::kNone : found->second;
}

std::vector<std::string> known_ids(client::Client& client, IdKind kind) {
  switch (kind) {
    case IdKind::kNone:
      return {};
    case IdKind::kFile:
      return ids_of(client.list_files(newest<v1::ListFilesRequest>()),
                    [](const auto& reply) { return reply.files(); });
    case IdKind::kJob:
      return ids_of(client.list_jobs(newest<v1::ListFineTuningJobsRequest>()),
                    [](const auto& reply) { return reply.jobs(); });
    case IdKind::kEvaluation:
      return ids_of(client.list_evaluations(newest<v1::ListEvaluationsRequest>()),
                    [](const auto& reply) { return reply.evaluations(); });
    case IdKind::kAdapter:
      return ids_of(client.list_adapters(newest<v1::ListAdaptersRequest>()),
                    [](const auto& reply) { return reply.adapters(); });
    case IdKind::kModel:
      return ids_of(client.list_models(), [](const auto& reply) { return reply.models(); });
    case IdKind::kModelOrAdapter: {
      auto ids = known_ids(client, IdKind::kModel);
      const auto adapters = known_ids(client, IdKind::kAdapter);
      ids.insert(ids.end(), adapters.begin(), adapters.end());
      return ids;
    }
    case IdKind::kPreset:
      return ids_of(client.list_presets(), [](const auto& reply) { return reply.presets(); });
    case IdKind::kWorker:
      return ids_of(client.list_workers(), [](const auto& reply) { return reply.workers(); });
  }
  return {};
}

}  // namespace dex::cli
