// Names and ids outside their alphabets, too large specs, too many pools: refused, and nothing is
// written (jobs.md §1, api.md §1).
#include <functional>
#include <string>
#include <vector>

#include "scheduler/store/alphabet.h"
#include "tests/integration/scheduler_store/store_fixture.h"
#include "tests/support/invariants.h"

namespace dex::store {
namespace {

const std::vector<std::string> kBadTenants = {"",     "Alice",
                                              "a:b",  "a b",
                                              "a/b",  "..",
                                              "a*",   std::string("a\0b", 3),
                                              "\xff", std::string(33, 'a')};
const std::vector<std::string> kBadIds = {"",         "FTJOB-1",
                                          "ftjob 1",  "ftjob/1",
                                          "ftjob-*",  "ftjob-{s1}",
                                          "\xc3\xa9", std::string("a\0b", 3),
                                          "a\nb",     std::string(256, 'a')};

class NameTest : public StoreTest {
 protected:
  using Call = std::function<base::Status()>;
  void refused(const std::string& reason, const Call& call) {
    const std::string before = support::dump_all(server());
    const base::Status status = call();
    EXPECT_EQ(status.reason(), reason) << status.to_string();
    EXPECT_EQ(support::dump_all(server()), before);
    for (const char c : status.message()) EXPECT_TRUE(c >= ' ' && c <= '~') << status.message();
  }
  static JobRepository::Submission of(NewJob job) {
    if (job.id.empty()) job.id = "ftjob-new";
    JobRepository::Submission submission;
    submission.request = {"r", "x"};
    submission.jobs = {std::move(job)};
    return submission;
  }
  void refused_job(const std::string& reason, const NewJob& job) {
    refused(reason, [&] { return jobs_->submit("default", of(job)).status(); });
  }
};

TEST_F(NameTest, AlphabetsAreThoseOfTheDesign) {
  EXPECT_TRUE(is_name("a-9"));
  EXPECT_TRUE(is_name(std::string(32, 'z')));
  EXPECT_TRUE(is_store_id("ft:base.1:default:my_suffix:01jd"));
  EXPECT_TRUE(is_store_id(std::string(255, '0')));
  EXPECT_TRUE(is_word("Retry/1!"));
  EXPECT_FALSE(is_word("two words"));
  EXPECT_FALSE(is_word(""));
  for (const std::string& bad : kBadTenants) EXPECT_FALSE(is_name(bad)) << shown(bad);
  for (const std::string& bad : kBadIds) EXPECT_FALSE(is_store_id(bad)) << shown(bad);
}

TEST_F(NameTest, NoTenantOutsideItsAlphabet) {
  const auto id = submit();
  for (const std::string& bad : kBadTenants) {
    SCOPED_TRACE(shown(bad));
    refused("INVALID_FIELD", [&] { return jobs_->submit(bad, of({})).status(); });
    refused("INVALID_FIELD", [&] { return jobs_->list(bad, {}, 10).status(); });
    refused("INVALID_FIELD", [&] { return jobs_->cancel(bad, id, "").status(); });
    refused("INVALID_FIELD", [&] { return jobs_->pause(bad, id).status(); });
    refused("INVALID_FIELD", [&] { return jobs_->redrive(bad, id, {"op", "x"}, 0).status(); });
    refused("INVALID_FIELD", [&] { return store_->made_by(bad, {"r", "x"}).status(); });
    refused("INVALID_FIELD", [&] { return store_->set_tenant(bad, 1, 1, 1, 0); });
    refused("INVALID_FIELD", [&] { return files_->remove(bad, "file-1").status(); });
    refused("INVALID_FIELD", [&] { return adapters_->desire(bad, "ft:x", true).status(); });
    // A record is only read: such a tenant has none.
    refused("RESOURCE_NOT_FOUND", [&] { return jobs_->get(bad, id).status(); });
    if (bad.empty()) continue;  // the janitor
    refused("INVALID_FIELD", [&] { return jobs_->purge_mark(bad, id, 0).status(); });
  }
}

TEST_F(NameTest, NoIdOutsideItsAlphabet) {
  for (const std::string& bad : kBadIds) {
    SCOPED_TRACE(shown(bad));
    if (!bad.empty()) {
      NewJob job;
      job.id = bad;
      refused_job("INVALID_FIELD", job);
    }
    FileRecord file;
    file.id = bad;
    file.sha256 = "sha";
    refused("INVALID_FIELD", [&] { return files_->put("default", {}, file, 10).status(); });
    // As an id that nobody has.
    refused("RESOURCE_NOT_FOUND", [&] { return jobs_->get("default", bad).status(); });
    refused("RESOURCE_NOT_FOUND", [&] { return jobs_->cancel("default", bad, "").status(); });
    refused("RESOURCE_NOT_FOUND", [&] { return jobs_->purge_mark("default", bad, 0).status(); });
    refused("RESOURCE_NOT_FOUND", [&] { return files_->get("default", bad).status(); });
    EXPECT_TRUE(jobs_->beat({"w1", bad, 1, 1, "", "", {}, {}})->verdict ==
                JobRepository::Verdict::kLost);
  }
}

TEST_F(NameTest, NoPartOfAJobOutsideItsAlphabet) {
  NewJob job;
  job.pool = "GPU 1";
  refused_job("INVALID_FIELD", job);
  job = {};
  job.unique_name = "two words";
  refused_job("INVALID_FIELD", job);
  job = {};
  job.adapter = "ft:\n";
  refused_job("INVALID_FIELD", job);
  job = {};
  job.base_model = "a b";
  refused_job("INVALID_FIELD", job);
  job = {};
  job.priority = 10;
  refused_job("INVALID_FIELD", job);
  job = {};
  job.files = {"file-1 file-2"};
  refused_job("RESOURCE_NOT_FOUND", job);
  job = {};
  job.spec = std::string((32 << 10) + 1, 's');
  refused_job("INVALID_FIELD", job);
  job.spec.pop_back();
  EXPECT_TRUE(jobs_->submit("default", of(job)).ok());
  auto other = of({});
  other.request.id = "with space";
  refused("INVALID_FIELD", [&] { return jobs_->submit("default", other).status(); });
}

TEST_F(NameTest, WorkersAndClaimsHaveNamesToo) {
  WorkerRecord worker;
  for (const std::string bad : {"", "two words", "\xff"}) {
    worker.id = bad;
    refused("INVALID_FIELD", [&] { return workers_->enlist(worker).status(); });
    refused("INVALID_FIELD", [&] { return workers_->alive(bad, "").status(); });
    refused("INVALID_FIELD", [&] { return jobs_->claim({bad, "c", 0, {"cpu"}}).status(); });
    refused("INVALID_FIELD", [&] { return jobs_->claim({"w1", bad, 0, {"cpu"}}).status(); });
  }
  worker.id = "w1";
  worker.pools = {"cpu", "CPU"};
  refused("INVALID_FIELD", [&] { return workers_->enlist(worker).status(); });
  refused("INVALID_FIELD", [&] { return jobs_->claim({"w1", "c", 0, {"CPU"}}).status(); });
}

TEST_F(NameTest, AShardHas32Pools) {
  WorkerRecord worker;
  worker.id = "w1";
  for (int i = 0; i < 31; ++i) worker.pools.push_back("p" + std::to_string(i));
  ASSERT_TRUE(workers_->enlist(worker).ok());
  NewJob job;
  job.pool = "p31";
  submit("default", job);  // the 32nd
  job.pool = "p32";
  refused_job("INVALID_FIELD", job);
  worker.pools = {"p1", "p32"};
  refused("INVALID_FIELD", [&] { return workers_->enlist(worker).status(); });
  worker.pools = {"p1", "p31"};
  EXPECT_TRUE(workers_->enlist(worker).ok());
}

}  // namespace
}  // namespace dex::store
