#pragma once

#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <sstream>
#include <string>

#include "client/cli/command.h"

namespace dex::cli {

// `dexctl jobs …` against a server that answers with `Jobs`, a service of the test.
template <typename Jobs>
class JobsCommandTest : public testing::Test {
 protected:
  JobsCommandTest() {
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&jobs_);
    server_ = builder.BuildAndStart();
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  // The exit code; what was written is in shown_ and said_.
  int jobs(const std::string& line, Format format = Format::kTable) {
    CLI::App app;
    Action action;
    add_jobs(app, action);
    app.parse("jobs " + line);
    std::ostringstream out, err;
    Output output(format, Terminal{}, false, out, err);
    client::Client client({.server = address_});
    Context context{client, output, {}};
    const int code = action(context);
    shown_ = out.str();
    said_ = err.str();
    return code;
  }

  Jobs jobs_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
  std::string shown_, said_;  // stdout, stderr
};

}  // namespace dex::cli
