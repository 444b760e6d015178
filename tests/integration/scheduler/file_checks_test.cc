// ValidateFile and PreviewFile: what they say of a file is what a job would train on.
#include <filesystem>
#include <fstream>

#include "services/data/dataset.h"
#include "services/data_view/file_report.h"
#include "services/text/model_text.h"
#include "tests/integration/scheduler/scheduler_fixture.h"
#include "tests/support/paths.h"

namespace dex::server {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class FileChecksTest : public SchedulerTest {
 protected:
  // The fixture's model has SmolLM2's shapes; here it has its tokenizer and template too.
  FileChecksTest() {
    const fs::path from = support::deps_dir() / "models/smollm2-135m-instruct";
    for (const auto& entry : fs::directory_iterator(from)) {
      const std::string name = entry.path().filename();
      if (name == "config.json" || name.ends_with(".safetensors") || name.ends_with(".gguf"))
        continue;
      if (entry.is_regular_file()) fs::copy_file(entry.path(), folder() / name);
    }
  }
  fs::path folder() { return directory_ / "models/small"; }

  static std::string chats() {
    std::string bytes;
    for (int i = 0; i < 20; ++i) {
      bytes += R"({"tag": "t", "messages": [{"role": "system", "content": "Be short."},)"
               R"({"role": "user", "content": "What is )" +
               std::to_string(i) + R"( + 1?"}, {"role": "assistant", "content": ")" +
               std::to_string(i + 1) + std::string(static_cast<size_t>(40 * i), '!') + "\"}]}\n";
    }
    return bytes;
  }
  static std::string texts() {
    std::string bytes;
    for (int i = 0; i < 20; ++i) {
      bytes += R"({"text": "Document )" + std::to_string(i) + ": ";
      for (int word = 0; word < 60 * i; ++word) bytes += "w" + std::to_string(word) + " ";
      bytes += "\"}\n";
    }
    return bytes;
  }
  std::string uploaded(const std::string& bytes) {
    const auto file = upload(bytes);
    EXPECT_TRUE(file.ok()) << file.status().to_string();
    return file.ok() ? file->id() : "";
  }
  struct Validated {
    base::Status status;
    std::vector<v1::Finding> findings;
    v1::FileStatistics statistics;
    v1::FileVerdict verdict;
    bool verdict_last = false;
  };
  Validated validate(const v1::ValidateFileRequest& request) {
    grpc::ClientContext context;
    rpc::set_timeout(context, std::chrono::seconds(60));
    const auto reader = files_->ValidateFile(&context, request);
    Validated out;
    v1::ValidateFileResponse part;
    while (reader->Read(&part)) {
      out.verdict_last = part.has_verdict();
      if (part.has_finding()) out.findings.push_back(part.finding());
      if (part.has_statistics()) out.statistics = part.statistics();
      if (part.has_verdict()) out.verdict = part.verdict();
    }
    out.status = rpc::from_grpc(reader->Finish());
    return out;
  }
  base::Result<v1::PreviewFileResponse> preview(const v1::PreviewFileRequest& request) {
    return call(*files_, &FileStub::PreviewFile, request, 60'000);
  }
  static v1::PreviewFileRequest asked(const std::string& file) {
    v1::PreviewFileRequest request;
    request.set_file(file);
    request.set_model("small-model");
    return request;
  }
};

// The trainer of the job that this file would have: its spec as create resolves it, its reader.
TEST_F(FileChecksTest, PreviewsTheIdsThatTheJobsTrainerReads) {
  for (const std::string& bytes : {chats(), texts()}) {
    const std::string id = uploaded(bytes);
    v1::CreateFineTuningJobRequest create;
    create.mutable_spec()->set_model("small-model");
    create.mutable_spec()->set_training_file(id);
    create.set_validate_only(true);
    const auto job = this->create(create);
    ASSERT_TRUE(job.ok()) << job.status().to_string();
    const auto& hyper = job->effective_config().spec().hyperparameters();
    data::LoadOptions loading;
    loading.encoder.max_seq_length = static_cast<int32_t>(hyper.max_seq_length());
    loading.encoder.truncation = data_view::truncation(hyper.truncation());
    loading.encoder.train_on_inputs = hyper.train_on_inputs();
    loading.encoder.vocab_size = 49152;
    std::ofstream(directory_ / "rows.jsonl", std::ios::binary) << bytes;
    const auto text = text::ModelText::load(folder());
    ASSERT_TRUE(text.ok()) << text.status().to_string();
    const auto trained = data::load_encoded(directory_ / "rows.jsonl", text->tokenizer.get(),
                                            text->chat_template.get(), loading);
    ASSERT_TRUE(trained.ok()) << trained.status().to_string();

    auto request = asked(id);
    request.set_limit(8);  // no text has more pieces
    size_t at = 0;
    do {
      const auto page = preview(request);
      ASSERT_TRUE(page.ok()) << page.status().to_string();
      EXPECT_EQ(page->encoding().max_seq_length(), hyper.max_seq_length());
      for (const auto& row : page->rows()) {
        ASSERT_LT(at, trained->examples.size());
        const data::Example& example = trained->examples[at++];
        EXPECT_EQ(row.line(), example.line);
        std::vector<int32_t> ids;
        std::vector<float> weights;
        for (const auto& token : row.tokens()) {
          ids.push_back(token.id());
          weights.push_back(token.weight());
        }
        EXPECT_EQ(ids, example.encoded.ids);
        EXPECT_EQ(weights, example.encoded.weights);
        EXPECT_EQ(row.trainable_tokens(), example.encoded.trainable_tokens);
        EXPECT_EQ(row.dropped_reason(), "");
      }
      request.set_offset(page->next_offset());
    } while (request.offset() > 0);
    EXPECT_EQ(at, trained->examples.size());

    v1::ValidateFileRequest whole;
    whole.set_file(id);
    whole.set_model("small-model");
    const auto checked = validate(whole);
    ASSERT_TRUE(checked.status.ok()) << checked.status.to_string();
    EXPECT_TRUE(checked.verdict_last);
    EXPECT_EQ(checked.verdict.state(), v1::FILE_STATE_READY) << checked.verdict.message();
    EXPECT_EQ(checked.statistics.tokens().tokens(), trained->tokens.tokens);
    EXPECT_EQ(checked.statistics.tokens().trainable_tokens(), trained->tokens.trainable_tokens);
    EXPECT_EQ(checked.statistics.tokens().sequences(),
              static_cast<int64_t>(trained->examples.size()));
    EXPECT_EQ(checked.statistics.tokens().max(), trained->tokens.lengths.max());
  }
}

TEST_F(FileChecksTest, RowsThatTrainNothingAreNamedBeforeTheJob) {
  std::string bytes = chats();
  // Cut from the left end, nothing of an answer this far from the other one survives.
  std::string question;
  for (int word = 0; word < 200; ++word) question += "why " + std::to_string(word) + " ";
  bytes += R"({"messages": [{"role": "user", "content": "q"}, {"role": "assistant",)"
           R"( "content": "a"}, {"role": "user", "content": ")" +
           question + "\"}]}\n";
  const std::string id = uploaded(bytes);
  v1::ValidateFileRequest request;
  request.set_file(id);
  request.set_model("small-model");
  request.mutable_encoding()->set_max_seq_length(64);
  request.mutable_encoding()->set_truncation(v1::Hyperparameters::TRUNCATION_LEFT);
  const auto checked = validate(request);
  ASSERT_TRUE(checked.status.ok()) << checked.status.to_string();
  EXPECT_EQ(checked.verdict.state(), v1::FILE_STATE_INVALID);
  EXPECT_THAT(checked.verdict.message(), HasSubstr("no_trainable_tokens (line 21)"));
  ASSERT_TRUE(checked.statistics.tokens().dropped().contains("no_trainable_tokens"));
  EXPECT_EQ(checked.statistics.tokens().dropped().at("no_trainable_tokens").lines(0), 21);
  const auto found = std::find_if(
      checked.findings.begin(), checked.findings.end(),
      [](const v1::Finding& finding) { return finding.code() == "no_trainable_tokens"; });
  ASSERT_NE(found, checked.findings.end());
  EXPECT_EQ(found->line(), 21);
  EXPECT_EQ(found->layer(), v1::Finding::LAYER_TOKENS);

  auto line = asked(id);
  *line.mutable_encoding() = request.encoding();
  line.add_lines(21);
  const auto shown = preview(line);
  ASSERT_TRUE(shown.ok()) << shown.status().to_string();
  ASSERT_EQ(shown->rows_size(), 1);
  EXPECT_EQ(shown->rows(0).dropped_reason(), "no_trainable_tokens");
  EXPECT_EQ(shown->rows(0).trainable_tokens(), 0);
  EXPECT_GT(shown->rows(0).tokens_size(), 0) << "what was left is shown";

  // Without a model there is nothing to say of tokens.
  v1::ValidateFileRequest structure;
  structure.set_file(id);
  const auto plain = validate(structure);
  ASSERT_TRUE(plain.status.ok()) << plain.status.to_string();
  EXPECT_EQ(plain.verdict.state(), v1::FILE_STATE_READY);
  EXPECT_FALSE(plain.statistics.has_tokens());
}

TEST_F(FileChecksTest, ReadsAFileAgainAsItsUploadDid) {
  v1::UploadFileRequest::Header header;
  header.set_skip_budget_ratio(0.1);
  header.set_format(v1::FILE_FORMAT_CHAT);
  const auto file = upload(chats() + "not json\n", header);
  ASSERT_TRUE(file.ok()) << file.status().to_string();
  ASSERT_EQ(file->state(), v1::FILE_STATE_READY);
  v1::ValidateFileRequest request;
  request.set_file(file->id());
  EXPECT_EQ(validate(request).verdict.state(), v1::FILE_STATE_READY);
  // A job tolerates 1 % where nobody says more.
  request.set_model("small-model");
  const auto trained = validate(request);
  EXPECT_EQ(trained.verdict.state(), v1::FILE_STATE_INVALID);
  EXPECT_THAT(trained.verdict.message(), HasSubstr("skip_budget_ratio allows 1.00 %"));
}

TEST_F(FileChecksTest, RefusesWhatHasNoEffectAndWhatIsNotThere) {
  const std::string id = uploaded(chats());
  v1::ValidateFileRequest request;
  request.set_file(id);
  request.mutable_encoding()->set_max_seq_length(64);
  expect_refused(validate(request).status, "UNUSED_FIELD", "encoding");
  request.set_model("no-such-model");
  expect_refused(validate(request).status, "MODEL_NOT_FOUND", "model");
  request.set_model("small-model");
  request.mutable_encoding()->set_max_seq_length(100'000);
  expect_refused(validate(request).status, "VALUE_OUT_OF_RANGE", "encoding.max_seq_length");
  request.mutable_encoding()->clear_max_seq_length();
  request.mutable_encoding()->set_preset("no-such-preset");
  expect_refused(validate(request).status, "UNKNOWN_PRESET", "");
  auto shown = asked("file-01arz3ndektsv4rrffq69g5fav");
  expect_refused(preview(shown).status(), "RESOURCE_NOT_FOUND", "");
  shown = asked(id);
  shown.set_limit(51);
  expect_refused(preview(shown).status(), "VALUE_OUT_OF_RANGE", "limit");
  shown.set_limit(1);
  shown.add_lines(3);
  shown.set_offset(2);
  expect_refused(preview(shown).status(), "CONFLICTING_FIELDS", "offset");
  v1::UploadFileRequest::Header header;
  header.set_purpose(v1::FILE_PURPOSE_EVALS);
  const auto evals = upload("plain words\n", header);
  ASSERT_TRUE(evals.ok()) << evals.status().to_string();
  expect_refused(preview(asked(evals->id())).status(), "FILE_INVALID", "file");
}

}  // namespace
}  // namespace dex::server
