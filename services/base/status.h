#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace dex::base {

// gRPC's codes, with gRPC's numbers, so that services/rpc converts by a cast and this room needs no
// gRPC.
enum class Code : int {
  kOk = 0,
  kCancelled = 1,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};

std::string_view name(Code code);  // "INVALID_ARGUMENT"

// One bad field of a request: a path as in JSON ("method.dex.lambda.anneal_steps") and what is
// wrong with it.
struct FieldViolation {
  std::string field;
  std::string description;
};

// The outcome of something that can fail. Cheap when OK. A failure says what, with which value, and
// what would be right; `reason` is the upper-case word of api.md §1 that programs test for
// ("FILE_NOT_READY").
class [[nodiscard]] Status {
 public:
  Status() = default;  // OK
  Status(Code code, std::string reason, std::string message);

  [[nodiscard]] bool ok() const { return !failure_; }
  [[nodiscard]] Code code() const { return failure_ ? failure_->code : Code::kOk; }
  [[nodiscard]] const std::string& reason() const;
  [[nodiscard]] const std::string& message() const;
  [[nodiscard]] const std::vector<FieldViolation>& violations() const;
  // Extra facts for ErrorInfo.metadata, e.g. {"scope", "jobs:write"}.
  [[nodiscard]] const std::vector<std::pair<std::string, std::string>>& metadata() const;

  Status with_violation(std::string field, std::string description) &&;
  Status with_metadata(std::string key, std::string value) &&;
  Status with_prefix(std::string_view prefix) &&;  // "prefix: message"

  [[nodiscard]] std::string to_string() const;  // "NOT_FOUND (MODEL_NOT_FOUND): …", for logs

 private:
  struct Failure {
    Code code;
    std::string reason;
    std::string message;
    std::vector<FieldViolation> violations;
    std::vector<std::pair<std::string, std::string>> metadata;
  };
  std::optional<Failure> failure_;
};

// The usual failures. `reason` as in api.md §1.
Status invalid_argument(std::string reason, std::string message);
Status invalid_field(std::string field, std::string message);  // INVALID_FIELD with its violation
// The same with another reason; the message is "<field> <what>".
Status bad_field(std::string reason, std::string field, std::string what);
Status not_found(std::string reason, std::string message);
Status failed_precondition(std::string reason, std::string message);
Status unavailable(std::string reason, std::string message);
Status internal(std::string message);

// A value or the reason why there is none.
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value)
      : state_(std::move(value)) {}  // NOLINT(google-explicit-constructor): return value;
  Result(Status status)
      : state_(std::move(status)) {}  // NOLINT(google-explicit-constructor): return status;

  [[nodiscard]] bool ok() const { return std::holds_alternative<T>(state_); }
  [[nodiscard]] Status status() const { return ok() ? Status() : std::get<Status>(state_); }
  // Only after ok().
  T& value() & { return std::get<T>(state_); }
  const T& value() const& { return std::get<T>(state_); }
  T&& value() && { return std::get<T>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

 private:
  std::variant<T, Status> state_;
};

}  // namespace dex::base

#define DEX_CONCAT_INNER(a, b) a##b
#define DEX_CONCAT(a, b) DEX_CONCAT_INNER(a, b)

#define DEX_RETURN_IF_ERROR(expression)                                      \
  do {                                                                       \
    if (auto dex_status = (expression); !dex_status.ok()) return dex_status; \
  } while (false)

// DEX_ASSIGN_OR_RETURN(auto job, repository.get(id));
#define DEX_ASSIGN_OR_RETURN(declaration, expression) \
  DEX_ASSIGN_OR_RETURN_INNER(DEX_CONCAT(dex_result_, __LINE__), declaration, expression)
#define DEX_ASSIGN_OR_RETURN_INNER(result, declaration, expression) \
  auto result = (expression);                                       \
  if (!result.ok()) return result.status();                         \
  declaration = std::move(result).value()
