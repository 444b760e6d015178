#include "scheduler/store/connection.h"

#include <hiredis/hiredis.h>

#include <charconv>

namespace dex::store {

namespace {

timeval to_timeval(std::chrono::milliseconds time) {
  return {time.count() / 1000, static_cast<suseconds_t>(time.count() % 1000 * 1000)};
}

Reply copy(const redisReply& from) {
  Reply reply;
  switch (from.type) {
    case REDIS_REPLY_INTEGER:
      reply.type = Reply::Type::kInteger;
      reply.integer = from.integer;
      break;
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      reply.type = Reply::Type::kText;
      reply.text.assign(from.str, from.len);
      break;
    case REDIS_REPLY_ARRAY:
      reply.type = Reply::Type::kArray;
      reply.elements.reserve(from.elements);
      for (size_t i = 0; i < from.elements; ++i) reply.elements.push_back(copy(*from.element[i]));
      break;
    default:
      break;  // nil
  }
  return reply;
}

ErrorClass classify(std::string_view message) {
  const std::string_view prefix = message.substr(0, message.find(' '));
  if (prefix == "NOSCRIPT") return ErrorClass::kNoScript;
  for (const std::string_view word :
       {"LOADING", "BUSY", "MISCONF", "OOM", "READONLY", "CLUSTERDOWN", "TRYAGAIN"}) {
    if (prefix == word) return ErrorClass::kTransient;
  }
  for (const std::string_view word : {"NOAUTH", "WRONGPASS", "NOPERM", "MOVED", "ASK"}) {
    if (prefix == word) return ErrorClass::kForbidden;
  }
  return ErrorClass::kOther;
}

base::Status store_unavailable(const std::string& text) {
  return base::unavailable("STORE_UNAVAILABLE", text);
}

}  // namespace

std::string_view name(ErrorClass error) {
  switch (error) {
    case ErrorClass::kIo:
      return "io";
    case ErrorClass::kTransient:
      return "transient";
    case ErrorClass::kNoScript:
      return "noscript";
    case ErrorClass::kForbidden:
      return "forbidden";
    case ErrorClass::kOther:
      return "other";
  }
  return "other";
}

base::Result<RedisAddress> RedisAddress::parse(const std::string& text) {
  RedisAddress address;
  if (text.starts_with("unix:")) {
    address.unix_path = text.substr(5);
    if (!address.unix_path.empty()) return address;
  } else if (const size_t colon = text.rfind(':'); colon != std::string::npos && colon > 0) {
    address.host = text.substr(0, colon);
    const char* end = text.data() + text.size();
    const auto [last, error] = std::from_chars(text.data() + colon + 1, end, address.port);
    if (error == std::errc() && last == end && address.port > 0 && address.port < 65536) {
      return address;
    }
  }
  return base::invalid_argument("INVALID_FIELD",
                                "Redis address '" + text + "' is neither unix:/path nor host:port");
}

std::string RedisAddress::to_string() const {
  return unix_path.empty() ? host + ":" + std::to_string(port) : "unix:" + unix_path;
}

base::Result<std::unique_ptr<Connection>> Connection::connect(const RedisAddress& address,
                                                              std::chrono::milliseconds timeout) {
  const timeval limit = to_timeval(timeout);
  redisContext* context = address.unix_path.empty()
                              ? redisConnectWithTimeout(address.host.c_str(), address.port, limit)
                              : redisConnectUnixWithTimeout(address.unix_path.c_str(), limit);
  if (context == nullptr) return store_unavailable("Redis: no memory for a connection");
  std::unique_ptr<Connection> connection(new Connection(context));
  if (context->err != 0) {
    return store_unavailable("Redis at " + address.to_string() +
                             " cannot be reached: " + context->errstr);
  }
  redisSetTimeout(context, limit);
  if (address.unix_path.empty()) redisEnableKeepAlive(context);  // fails on a Unix socket

  if (!address.password.empty()) {
    std::vector<std::string> auth = {"AUTH"};
    if (!address.username.empty()) auth.push_back(address.username);
    auth.push_back(address.password);
    const Answer answer = connection->call(auth);
    if (!answer.ok && (answer.error == ErrorClass::kIo || answer.error == ErrorClass::kTransient))
      return store_unavailable(answer.message);
    if (!answer.ok) {
      return base::failed_precondition(
          "STORE_REFUSED",
          "Redis at " + address.to_string() + " refused the login: " + answer.message);
    }
  }
  return connection;
}

Connection::~Connection() {
  redisFree(context_);
}

Answer Connection::call(const std::vector<std::string>& args) {
  std::vector<const char*> pointers;
  std::vector<size_t> lengths;
  for (const std::string& arg : args) {
    pointers.push_back(arg.data());
    lengths.push_back(arg.size());
  }
  std::unique_ptr<redisReply, decltype(&freeReplyObject)> raw(
      static_cast<redisReply*>(redisCommandArgv(context_, static_cast<int>(args.size()),
                                                pointers.data(), lengths.data())),
      freeReplyObject);
  Answer answer;
  if (raw == nullptr) {
    answer.message = std::string("Redis connection lost: ") + context_->errstr;
  } else if (raw->type == REDIS_REPLY_ERROR) {
    answer.message.assign(raw->str, raw->len);
    answer.error = classify(answer.message);
  } else {
    answer.ok = true;
    answer.reply = copy(*raw);
  }
  return answer;
}

}  // namespace dex::store
