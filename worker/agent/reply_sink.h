#pragma once

#include "dex/v1/inference.pb.h"
#include "services/base/status.h"

namespace dex::agent {

// Where the answer to one generation goes. Called by the engine's reader, one call at a time; must
// not block. The last call is finish or fail.
class ReplySink {
 public:
  virtual ~ReplySink() = default;
  // A start or a delta. False: nobody listens any more, the engine may stop.
  virtual bool event(dex::v1::GenerateStreamResponse event) = 0;
  virtual void finish(const dex::v1::GenerateStreamResponse::Finish& finish) = 0;
  virtual void fail(const base::Status& status) = 0;
};

// Puts the events of a stream together into the answer of the unary call. Not thread-safe.
class ReplyBuilder {
 public:
  void add(const dex::v1::GenerateStreamResponse& event);
  dex::v1::GenerateResponse take(const dex::v1::GenerateStreamResponse::Finish& finish);

 private:
  dex::v1::GenerateResponse reply_;
};

}  // namespace dex::agent
