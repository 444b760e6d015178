#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "scheduler/store/store.h"
#include "services/base/status.h"

namespace dex::store {

// Repairs sets that disagree with a job's state (T18), a small part a call: over 100,000 jobs the
// whole takes minutes, and whoever does it has sweeps to make in between. One thread.
class Reconciler {
 public:
  explicit Reconciler(Store& store) : store_(store) {}  // the store outlives this object

  struct Part {
    int64_t fixes = 0;  // members that were wrong; 0 in a healthy store
    bool done = false;  // every set and every job has been looked at; the next step begins anew
  };
  // A few short round trips: a page of a set, or of the keys. After a failure the next step begins
  // anew as well, since a place in one Redis says nothing to another.
  base::Result<Part> step();
  void restart();  // the next step begins anew

 private:
  base::Result<int64_t> look();
  base::Status list_sets();
  base::Result<int64_t> look_at_set();
  base::Result<int64_t> look_at_keys();
  base::Result<int64_t> fix(const std::vector<std::string>& head,
                            const std::vector<std::string>& ids);

  Store& store_;
  bool begun_ = false;
  bool keys_seen_ = false;
  std::deque<std::string> sets_;  // to look at, without prefix
  std::deque<std::string> held_;  // sets of users, which the keys tell of: looked at after them
  std::string at_ = "0";          // cursor in the first of sets_; when there is none, in the keys
};

}  // namespace dex::store
