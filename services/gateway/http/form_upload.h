#pragma once

#include <google/protobuf/descriptor.h>

#include <string>

#include "services/gateway/http/router.h"
#include "services/gateway/http/upstream.h"

namespace dex::gateway::http {

// POST of multipart/form-data with the parts `header` (the RPC's header message in JSON) and then
// `file` (its bytes), for client-streaming RPCs whose request is `oneof {header, chunk}`:
// UploadFile, ImportAdapter. The file is handed on piece by piece as fast as it is taken, never
// kept. Answers the RPC's reply in JSON. An RPC of another shape answers 501. `upstream` outlives
// the router.
void add_form_upload(Router& router, const std::string& pattern, Upstream& upstream,
                     const google::protobuf::MethodDescriptor& method);

// Answers with a call's reply as JSON, or with its failure.
void reply_message(Exchange& exchange, Answer<grpc::ByteBuffer> answer,
                   const google::protobuf::Descriptor* type);

}  // namespace dex::gateway::http
