#include "services/gateway/openai/upload.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <mutex>

#include "dex/v1/files.pb.h"
#include "services/gateway/http/multipart.h"
#include "services/gateway/openai/file_objects.h"

namespace dex::gateway::openai {

namespace {

constexpr size_t kLongestValue = 256;      // bytes of a field that is no file
constexpr size_t kSpoolPiece = 256 << 10;  // bytes that are read back at once
constexpr const char* kUpload = "/dex.v1.FileService/UploadFile";

// Bytes that wait for the rest of the form. Blocks on the disk; what does not fit is an error.
class Spool {
 public:
  Spool() : file_(std::tmpfile(), &std::fclose) {}
  bool write(const std::string& bytes) {
    return file_ && std::fwrite(bytes.data(), 1, bytes.size(), file_.get()) == bytes.size();
  }
  bool rewind() { return file_ && std::fseek(file_.get(), 0, SEEK_SET) == 0; }
  // Empty: the end.
  base::Result<std::string> read() {
    std::string piece(kSpoolPiece, '\0');
    piece.resize(std::fread(piece.data(), 1, piece.size(), file_.get()));
    if (std::ferror(file_.get()) != 0) return fault();
    return piece;
  }
  static base::Status fault() {
    return base::Status(base::Code::kResourceExhausted, "STORAGE_FULL",
                        std::string("the gateway can't keep the file until the form's purpose is "
                                    "known (") +
                            std::strerror(errno) + "); send purpose before file");
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
};

// One upload. Its steps follow each other, on the connection's strand and on gRPC's threads in
// turn; only the call's answer may come between them.
class Upload : public std::enable_shared_from_this<Upload> {
 public:
  Upload(DoorPtr door, http::ExchangePtr exchange, std::shared_ptr<http::MultipartReader> form)
      : door_(std::move(door)), exchange_(std::move(exchange)), form_(std::move(form)) {}

  void next() {
    form_->next([self = shared_from_this()](base::Result<http::MultipartEvent> event) {
      if (!event.ok()) return self->fail(event.status());
      self->take(std::move(event).value());
    });
  }

 private:
  using Kind = http::MultipartEvent::Kind;

  void take(http::MultipartEvent event) {
    if (over()) return;
    switch (event.kind) {
      case Kind::kPart:
        return begin_part(event.part);
      case Kind::kData:
        return data(std::move(event.data));
      case Kind::kPartEnd:
        return next();
      case Kind::kEnd:
        return end();
    }
  }

  void begin_part(const http::Part& part) {
    if (part.name == "file") return begin_file(part);
    if (part.name.starts_with("expires_after")) {
      return fail(base::bad_field("UNSUPPORTED_PARAMETER", part.name,
                                  "is not supported: files stay until they are deleted"));
    }
    if (part.name != "purpose") {
      return fail(base::bad_field("UNKNOWN_FIELD", part.name.substr(0, 100),
                                  "is not known; the form's fields are purpose and file"));
    }
    if (header_.purpose() != v1::FILE_PURPOSE_UNSPECIFIED)
      return fail(base::invalid_field("purpose", "purpose comes twice; give it once"));
    form_->read_part(kLongestValue, [self = shared_from_this()](base::Result<std::string> value) {
      if (!value.ok()) return self->fail(value.status());
      self->take_purpose(value.value());
    });
  }

  void take_purpose(const std::string& word) {
    const auto purpose = read_purpose("purpose", word);
    if (!purpose.ok()) return fail(purpose.status());
    header_.set_purpose(purpose.value());
    next();
  }

  void begin_file(const http::Part& part) {
    if (has_file_) return fail(base::invalid_field("file", "file comes twice; give it once"));
    has_file_ = true;
    header_.set_filename(part.filename.value_or("upload.jsonl"));
    if (header_.purpose() == v1::FILE_PURPOSE_UNSPECIFIED) {
      spool_.emplace();
      return next();
    }
    if (open_call()) send_header([self = shared_from_this()] { self->next(); });
  }

  void data(std::string bytes) {
    if (spool_) {
      if (!spool_->write(bytes)) return fail(Spool::fault());
      return next();
    }
    send_chunk(std::move(bytes), [self = shared_from_this()] { self->next(); });
  }

  void end() {
    if (!has_file_) return fail(base::bad_field("MISSING_FIELD", "file", "must be given"));
    if (header_.purpose() == v1::FILE_PURPOSE_UNSPECIFIED)
      return fail(base::bad_field("MISSING_FIELD", "purpose", "must be given"));
    if (!spool_) return call_->done();
    if (!spool_->rewind()) return fail(Spool::fault());
    if (open_call()) send_header([self = shared_from_this()] { self->unspool(); });
  }

  void unspool() {
    auto piece = spool_->read();
    if (!piece.ok()) return fail(piece.status());
    if (piece.value().empty()) return call_->done();
    send_chunk(std::move(piece).value(), [self = shared_from_this()] { self->unspool(); });
  }

  // What a repeat has equal, of what is known before the bytes; the scheduler compares those. The
  // boundary is another one each time, its length is not.
  bool open_call() {
    const std::string content = header_.filename() + "\n" +
                                std::to_string(static_cast<int>(header_.purpose())) + "\n" +
                                exchange_->request().header("content-length").value_or("");
    if (!identify(*door_, exchange_, content, header_)) {
      const std::lock_guard lock(mutex_);
      over_ = true;
      return false;
    }
    http::CallOptions options;
    options.timeout = std::chrono::milliseconds(0);
    const std::lock_guard lock(mutex_);  // the answer may come before call_ is set
    call_ = door_->upstream.client_stream(
        exchange_, kUpload, options,
        [self = shared_from_this()](http::Answer<grpc::ByteBuffer> answer) {
          self->answer(std::move(answer));
        });
    return true;
  }

  void send_header(std::function<void()> then) {
    v1::UploadFileRequest message;
    *message.mutable_header() = header_;
    send(message, std::move(then));
  }

  void send_chunk(std::string bytes, std::function<void()> then) {
    v1::UploadFileRequest message;
    message.set_chunk(std::move(bytes));
    send(message, std::move(then));
  }

  void send(const v1::UploadFileRequest& message, std::function<void()> then) {
    call_->send(http::to_bytes(message),
                [self = shared_from_this(), then = std::move(then)](bool ok) {
                  if (ok && !self->over()) then();
                });
  }

  void answer(http::Answer<grpc::ByteBuffer> answer) {
    if (!finish()) return;
    if (!answer.status.ok()) return http::refuse(*exchange_, answer.status);
    v1::File file;
    if (!http::from_bytes(std::move(answer.message), file))
      return http::refuse(*exchange_, http::bad_reply("dex.v1.File"));
    exchange_->reply(marked(http::json_reply(file_object(file)), answer.metadata));
  }

  void fail(const base::Status& why) {
    if (!finish()) return;
    std::shared_ptr<http::ClientStream> call;
    {
      const std::lock_guard lock(mutex_);
      call = call_;
    }
    if (call) call->cancel();
    http::refuse(*exchange_, why);
  }

  // True once: for who answers the exchange.
  bool finish() {
    const std::lock_guard lock(mutex_);
    return !std::exchange(over_, true);
  }
  bool over() {
    const std::lock_guard lock(mutex_);
    return over_;
  }

  const DoorPtr door_;
  const http::ExchangePtr exchange_;
  const std::shared_ptr<http::MultipartReader> form_;
  v1::UploadFileRequest::Header header_;
  bool has_file_ = false;
  std::optional<Spool> spool_;
  std::mutex mutex_;
  std::shared_ptr<http::ClientStream> call_;  // set under mutex_
  bool over_ = false;                         // guarded by mutex_
};

}  // namespace

void answer_upload(const DoorPtr& door, const http::ExchangePtr& exchange) {
  auto form = http::MultipartReader::open(exchange);
  if (!form.ok()) return http::refuse(*exchange, form.status());
  std::make_shared<Upload>(door, exchange, std::move(form).value())->next();
}

}  // namespace dex::gateway::openai
