#pragma once

#include <string>
#include <vector>

#include "scheduler/store/file_repository.h"
#include "scheduler/store/job_repository.h"
#include "scheduler/store/store.h"
#include "scheduler/store/worker_repository.h"
#include "tests/support/store_snapshot.h"

// The repositories' answers as words, so that they can be compared with what the reference expects.
// A refusal is its reason; NAME_TAKEN also names the holder.
namespace dex::model {

std::string joined(const std::vector<std::string>& words);
std::string whole(double number);  // as the scripts write integers

// "JOB id epoch checkpoint attempt ooms want … spec files"
std::string claim_line(const support::StoreSnapshot::Fields& job, const std::string& spec);
std::string sweep_line(size_t pulled, size_t deadlines, size_t leases, size_t delayed,
                       size_t uncapped, size_t lost, bool settling, size_t orphans);

std::string said(const store::JobRepository::Submitted& answer);
std::string said(const store::JobRepository::Changed& answer);
std::string said(const store::JobRepository::Asked& answer);
std::string said(const store::JobRepository::Purge& answer);
std::string said(const store::JobRepository::Claim& answer);
std::string said(const store::JobRepository::BeatReply& answer);
std::string said(const store::JobRepository::Finished& answer);
std::string said(const store::FileRepository::Put& answer);
std::string said(const store::FileRepository::Deleted& answer);
std::string said(const store::WorkerRepository::Sign& answer);
std::string said(const store::Store::Swept& answer);
std::string refused(const base::Status& status);

template <typename T>
std::string answer_of(const base::Result<T>& result) {
  return result.ok() ? said(*result) : refused(result.status());
}

// Whether a second call may say `again` after the first said `first`: the same, or DUP (I8).
bool same_answer(const std::string& first, const std::string& again);

}  // namespace dex::model
