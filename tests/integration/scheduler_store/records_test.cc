// Files, adapters, workers, lists.
#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

class RecordsTest : public StoreTest {
 protected:
  FileRecord file(const std::string& id, const std::string& sha = "abc") {
    FileRecord file;
    file.id = id;
    file.filename = "data.jsonl";
    file.state = "READY";
    file.sha256 = sha;
    file.bytes = 12;
    file.info = std::string("opaque\0bytes", 12);
    return file;
  }
};

TEST_F(RecordsTest, FileIsStoredWholeAndOnce) {
  ASSERT_FALSE(!store_->made_by("default", {"r", "body"})->empty());
  ASSERT_FALSE(files_->put("default", {"r", "body"}, file("file-1"), 100)->replayed);
  EXPECT_EQ(files_->put("default", {"r", "body"}, file("file-2"), 100)->id, "file-1");
  EXPECT_EQ(*store_->made_by("default", {"r", "body"}), std::vector<std::string>{"file-1"});
  EXPECT_EQ(store_->made_by("default", {"r", "other"}).status().reason(), "IDEMPOTENCY_CONFLICT");
  const auto stored = files_->get("default", "file-1");
  ASSERT_TRUE(stored.ok());
  EXPECT_EQ(stored->info, std::string("opaque\0bytes", 12));
  EXPECT_EQ(stored->bytes, 12);
  EXPECT_EQ(files_->get("other", "file-1").status().reason(), "RESOURCE_NOT_FOUND");
}

TEST_F(RecordsTest, BytesAreSharedUntilTheLastRecordGoes) {
  ASSERT_TRUE(files_->put("a", {"1", "x"}, file("file-1"), 100).ok());
  ASSERT_TRUE(files_->put("b", {"2", "x"}, file("file-2"), 100).ok());
  EXPECT_FALSE(files_->remove("a", "file-1")->last);
  EXPECT_TRUE(*files_->named("abc"));
  EXPECT_TRUE(files_->remove("b", "file-2")->last);
  EXPECT_FALSE(*files_->named("abc"));
}

TEST_F(RecordsTest, RecordsWithoutBytesAreLostUntilTheyAreBackAndTakeNoJobs) {
  auto invalid = file("file-2");
  invalid.state = "INVALID";
  ASSERT_TRUE(files_->put("a", {"1", "x"}, file("file-1"), 100).ok());
  ASSERT_TRUE(files_->put("b", {"2", "x"}, invalid, 100).ok());
  ASSERT_TRUE(files_->put("a", {"3", "x"}, file("file-3", "other"), 100).ok());
  auto contents = *files_->contents();
  std::sort(contents.begin(), contents.end());
  EXPECT_EQ(contents, (std::vector<std::string>{"abc", "other"}));

  EXPECT_EQ(*files_->set_bytes("abc", true), 0);
  EXPECT_EQ(*files_->set_bytes("abc", false), 2);
  EXPECT_EQ(*files_->set_bytes("abc", false), 0);  // sent twice
  EXPECT_EQ(files_->get("a", "file-1")->state, "LOST");
  EXPECT_EQ(files_->get("b", "file-2")->state, "LOST");
  EXPECT_EQ(files_->get("a", "file-3")->state, "READY");
  JobRepository::Submission submission;
  submission.request = {"r", "body"};
  submission.jobs.resize(1);
  submission.jobs[0].id = "ftjob-1";
  submission.jobs[0].files = {"file-1"};
  const auto refused = jobs_->submit("a", submission).status();
  EXPECT_EQ(refused.reason(), "FILE_INVALID");
  EXPECT_NE(refused.message().find("upload it again"), std::string::npos);

  EXPECT_EQ(*files_->set_bytes("abc", true), 2);
  EXPECT_EQ(*files_->set_bytes("abc", true), 0);
  EXPECT_EQ(files_->get("a", "file-1")->state, "READY");
  EXPECT_EQ(files_->get("b", "file-2")->state, "INVALID");
  EXPECT_EQ(*files_->set_bytes("unheard-of", false), 0);
  EXPECT_TRUE(*files_->exists("file-1"));
  EXPECT_FALSE(*files_->exists("file-9"));
}

TEST_F(RecordsTest, ARepeatedDeletionIsTheFirstOne) {
  ASSERT_TRUE(files_->put("a", {"1", "x"}, file("file-1"), 100).ok());
  const RequestKey request{"delete-1", "body"};
  EXPECT_TRUE(files_->remove("a", "file-1", request)->last);
  const std::string before = dump_all(server());
  EXPECT_TRUE(files_->remove("a", "file-1", request)->replayed);
  EXPECT_EQ(files_->remove("a", "file-1", {"delete-1", "other"}).status().reason(),
            "IDEMPOTENCY_CONFLICT");
  EXPECT_EQ(files_->remove("b", "file-1", request).status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(files_->remove("a", "file-1").status().reason(), "RESOURCE_NOT_FOUND");
  EXPECT_EQ(dump_all(server()), before);
  // For a day, by Redis' own clock.
  const int64_t left = server().call({"PTTL", store_->key("idem:a:delete-1")}).as_int();
  EXPECT_GT(left, 23 * 3'600'000);
  EXPECT_LE(left, 24 * 3'600'000);
}

TEST_F(RecordsTest, FileQuotaIsExact) {
  ASSERT_TRUE(files_->put("a", {"1", "x"}, file("file-1"), 2).ok());
  ASSERT_TRUE(files_->put("a", {"2", "x"}, file("file-2"), 2).ok());
  EXPECT_EQ(files_->put("a", {"3", "x"}, file("file-3"), 2).status().reason(), "QUOTA_EXCEEDED");
}

TEST_F(RecordsTest, PagesNeitherSkipNorRepeatWhileRowsArrive) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 1000, 1000, 0).ok());
  for (int i = 0; i < 150; ++i) {
    if (i % 7 == 0) clock_.advance_ms(1);  // many rows share a millisecond
    submit();
  }
  std::set<std::string> seen;
  Cursor cursor;
  int pages = 0;
  while (true) {
    const auto page = jobs_->list("default", cursor, 10);
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    if (page->empty()) break;
    for (const JobRecord& job : *page) EXPECT_TRUE(seen.insert(job.id).second) << job.id;
    cursor = {page->back().created_ms, page->back().id};
    if (++pages == 3) submit();  // a new one comes first, not in between
  }
  EXPECT_EQ(seen.size(), 150U);
}

// A hundred jobs with the largest spec have three megabytes.
TEST_F(RecordsTest, LargeRecordsComeInRepliesOfABoundedSize) {
  ASSERT_TRUE(store_->set_tenant("default", 1, 1000, 1000, 0).ok());
  NewJob job;
  job.spec.assign(32 << 10, 's');
  std::vector<std::string> newest_first;
  for (int i = 0; i < 80; ++i) {
    clock_.advance_ms(1);
    newest_first.insert(newest_first.begin(), submit("default", job));
  }
  const auto reply = store_->run("list", {"job", "default", "", "", "100"});
  ASSERT_TRUE(reply.ok()) << reply.status().to_string();
  EXPECT_EQ(reply->str(0), "MORE");
  size_t bytes = 0;
  for (const Reply& row : reply->elements) bytes += row.str(3).size();
  EXPECT_GT(bytes, 1U << 19);
  EXPECT_LE(bytes, 3U << 19);
  for (const size_t count : {size_t{33}, size_t{79}, size_t{80}, size_t{100}}) {
    const auto page = jobs_->list("default", {}, static_cast<int>(count));
    ASSERT_TRUE(page.ok()) << page.status().to_string();
    ASSERT_EQ(page->size(), std::min(count, newest_first.size()));
    for (size_t i = 0; i < page->size(); ++i) EXPECT_EQ((*page)[i].id, newest_first[i]);
  }
}

TEST_F(RecordsTest, DesiredAdaptersAreKnownToWorkers) {
  enlist("w1");
  NewJob job;
  job.adapter = "ft:b:default:s:1";
  submit("default", job);
  finish(claim("w1").job, "w1", "success");
  const int64_t before = adapters_->wanted()->revision;
  ASSERT_TRUE(adapters_->desire("default", job.adapter, true).ok());
  ASSERT_TRUE(adapters_->desire("default", job.adapter, true).ok());
  const auto wanted = adapters_->wanted();
  EXPECT_EQ(wanted->revision, before + 1);
  ASSERT_EQ(wanted->adapters.size(), 1U);
  EXPECT_EQ(wanted->adapters[0].id, job.adapter);
  EXPECT_EQ(workers_->alive("w1", "")->desired_revision, before + 1);
  EXPECT_EQ(adapters_->desire("other", job.adapter, true).status().reason(), "RESOURCE_NOT_FOUND");
  ASSERT_TRUE(adapters_->desire("default", job.adapter, false).ok());
  EXPECT_TRUE(adapters_->wanted()->adapters.empty());
  EXPECT_EQ(adapters_->list("default", {}, 10)->size(), 1U);
}

// A load that is sent again must not undo the unload that came after it.
TEST_F(RecordsTest, ARepeatedWishDoesNotOverrideALaterOne) {
  enlist("w1");
  NewJob job;
  job.adapter = "ft:b:default:s:1";
  submit("default", job);
  finish(claim("w1").job, "w1", "success");
  const RequestKey load{"load", "a"}, unload{"unload", "b"};
  EXPECT_FALSE(*adapters_->desire("default", job.adapter, true, load));
  EXPECT_FALSE(*adapters_->desire("default", job.adapter, false, unload));
  EXPECT_TRUE(*adapters_->desire("default", job.adapter, true, load));
  EXPECT_TRUE(adapters_->wanted()->adapters.empty());
  EXPECT_EQ(adapters_->desire("default", job.adapter, true, {"unload", "a"}).status().reason(),
            "IDEMPOTENCY_CONFLICT");
}

TEST_F(RecordsTest, RoutesChangeOnlyWhenSomethingChanged) {
  enlist("w1");
  const int64_t first = *workers_->routes_revision();
  ASSERT_TRUE(workers_->alive("w1", "a").ok());
  const int64_t second = *workers_->routes_revision();
  EXPECT_GT(second, first);
  ASSERT_TRUE(workers_->alive("w1", "a").ok());
  EXPECT_EQ(*workers_->routes_revision(), second);
  const auto routes = workers_->routes();
  ASSERT_EQ(routes->workers.size(), 1U);
  EXPECT_EQ(routes->workers[0].live, "a");
  ASSERT_TRUE(workers_->gone("w1").ok());
  EXPECT_TRUE(workers_->routes()->workers.empty());
}

TEST_F(RecordsTest, StatsCountJobsByWhatTheirStateIsMadeOf) {
  enlist("w1");
  submit();
  submit();
  submit();
  const auto paused = submit();
  ASSERT_TRUE(jobs_->pause("default", paused).ok());
  NewJob later;
  later.delay_ms = 60'000;
  submit("default", later);
  const auto claimed = claim("w1").job;
  ASSERT_TRUE(jobs_->pause("default", claimed.id).ok());
  ASSERT_TRUE(jobs_->beat({"w1", claimed.id, claimed.epoch, 1, "VALIDATING", "p", {}, {}}).ok());
  clock_.advance_ms(3000);
  const auto stats = store_->stats();
  ASSERT_TRUE(stats.ok()) << stats.status().to_string();
  ASSERT_EQ(stats->pools.size(), 1U);
  EXPECT_EQ(stats->pools[0].oldest_ready_seconds, 3.0);
  EXPECT_EQ(stats->workers.size(), 1U);
  std::map<std::string, std::string> found;
  for (const auto& job : stats->jobs) {
    found[job.state] = std::to_string(job.count) + " " + job.pool + " " + job.want + " " +
                       job.phase + " " + job.progress;
  }
  EXPECT_EQ(found, (std::map<std::string, std::string>{{"READY", "2 cpu   "},
                                                       {"RUNNING", "1 cpu pause VALIDATING p"},
                                                       {"DELAYED", "1 cpu run  "},
                                                       {"PAUSED", "1 cpu run  "}}));
}

}  // namespace
}  // namespace dex::store
