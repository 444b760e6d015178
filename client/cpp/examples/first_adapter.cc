// From a file of rows to an adapted model that answers: first_adapter SERVER MODEL ROWS.jsonl
// PROMPT
#include <iostream>

#include "client/cpp/client.h"

namespace v1 = dex::v1;

int fail(const dex::client::Status& status) {
  std::cerr << status.to_string() << std::endl;
  return 1;
}

int main(int argc, char** argv) {
  if (argc != 5) return fail(dex::base::invalid_argument("", "SERVER MODEL ROWS.jsonl PROMPT"));
  dex::client::Client client({.server = argv[1]});
  const auto file = client.upload_file(argv[3], {});
  if (!file.ok()) return fail(file.status());
  for (const v1::Finding& finding : file->findings())
    std::cerr << "line " << finding.line() << ": " << finding.message() << '\n';

  v1::CreateFineTuningJobRequest request;
  request.mutable_spec()->set_model(argv[2]);
  request.mutable_spec()->set_training_file(file->id());
  auto job = client.create_job(request);
  if (!job.ok()) return fail(job.status());
  const auto watched = client.watch_job(job->id(), 0, [](const auto& said) {
    if (said.has_event()) std::cerr << said.event().message() << '\n';
    return true;  // go on, over restarts too, until the job has ended
  });
  if (!watched.ok()) return fail(watched);
  if (job = client.get_job(job->id()); !job.ok()) return fail(job.status());

  v1::GenerateRequest question;
  question.set_model(job->fine_tuned_model());
  question.set_prompt(argv[4]);
  const auto answer = client.generate(question);
  if (!answer.ok()) return fail(answer.status());
  std::cout << answer->model() << ": " << answer->text() << std::endl;
}
