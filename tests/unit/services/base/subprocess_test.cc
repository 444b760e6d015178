#include "services/base/subprocess.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>
#include <fstream>

#include "services/base/clock.h"
#include "tests/support/content_of.h"
#include "tests/support/eventually.h"
#include "tests/support/temporary_directory.h"

namespace dex::base {
namespace {

using support::content_of;
using support::kPatience_ms;

Subprocess::Options shell(const std::string& script) {
  Subprocess::Options options;
  options.program = "/bin/sh";
  options.args = {"-c", script};
  return options;
}

// The read end of a pipe whose write end only the children hold: it ends when the last of them
// does.
struct Lifeline {
  Fd read_end;
  Fd write_end;
  Lifeline() {
    int fds[2];
    EXPECT_EQ(pipe2(fds, O_CLOEXEC), 0);
    read_end = Fd(fds[0]);
    write_end = Fd(fds[1]);
  }
  // One byte: a child says that it is ready.
  bool ready() {
    pollfd entry{read_end.get(), POLLIN, 0};
    char byte = 0;
    return poll(&entry, 1, kPatience_ms) == 1 && read(read_end.get(), &byte, 1) == 1;
  }
  bool all_gone() {
    write_end.reset();
    pollfd entry{read_end.get(), POLLIN, 0};
    char byte = 0;
    return poll(&entry, 1, kPatience_ms) == 1 && read(read_end.get(), &byte, 1) == 0;
  }
};

TEST(SubprocessTest, ReportsCodeAndSignal) {
  auto child = Subprocess::start(shell("exit 7"));
  ASSERT_TRUE(child.ok());
  auto end = (*child)->wait(kPatience_ms);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->code, 7);
  EXPECT_EQ(end->to_string(), "exit code 7");

  child = Subprocess::start(shell("kill -SEGV $$"));
  ASSERT_TRUE(child.ok());
  end = (*child)->wait(kPatience_ms);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGSEGV);
  EXPECT_FALSE(end->success());
}

TEST(SubprocessTest, AMissingProgramIsAnError) {
  Subprocess::Options options;
  options.program = "/nowhere/program";
  const auto child = Subprocess::start(options);
  EXPECT_EQ(child.status().reason(), "FILE_MISSING");
  EXPECT_NE(child.status().message().find("/nowhere/program"), std::string::npos);
}

TEST(SubprocessTest, WaitReturnsWhenTheTimeIsOver) {
  auto child = Subprocess::start(shell("sleep 60"));
  ASSERT_TRUE(child.ok());
  EXPECT_FALSE((*child)->wait(10));
  EXPECT_FALSE((*child)->wait(0));
}

TEST(SubprocessTest, RedirectsOutputAndSetsTheEnvironment) {
  const support::TemporaryDirectory directory;
  auto options = shell("echo out $DEX_X; echo err >&2");
  options.environment = {{"DEX_X", "42"}};
  options.stdout_file = directory / "out";
  options.stderr_file = directory / "err";
  for (int i = 0; i < 2; ++i) {
    auto child = Subprocess::start(options);
    ASSERT_TRUE(child.ok());
    ASSERT_TRUE((*child)->wait(kPatience_ms));
  }
  EXPECT_EQ(content_of(directory / "out"), "out 42\nout 42\n") << "appended";
  EXPECT_EQ(content_of(directory / "err"), "err\nerr\n");
}

TEST(SubprocessTest, InheritsTheNamedDescriptorsOnlyAndInOrder) {
  const support::TemporaryDirectory directory;
  std::ofstream(directory / "a") << "A";
  std::ofstream(directory / "b") << "B";
  // Opened without close-on-exec on purpose, and so that source and target numbers overlap.
  const Fd a(open((directory / "a").c_str(), O_RDONLY));
  const Fd b(open((directory / "b").c_str(), O_RDONLY));
  auto options = shell("cat <&3; cat <&4; ls /proc/self/fd | wc -l");
  options.inherit = {b.get(), a.get()};
  options.stdout_file = directory / "out";
  auto child = Subprocess::start(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE((*child)->wait(kPatience_ms));
  // 0 to 4, and the directory that ls reads.
  EXPECT_EQ(content_of(directory / "out"), "BA6\n");
}

TEST(SubprocessTest, TerminateIsGentleFirst) {
  Lifeline line;
  auto options = shell("trap 'exit 5' TERM; echo >&3; while :; do sleep 0.01; done");
  options.inherit = {line.write_end.get()};
  auto child = Subprocess::start(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(line.ready());
  EXPECT_EQ((*child)->terminate(kPatience_ms).code, 5);
  EXPECT_TRUE(line.all_gone());
}

TEST(SubprocessTest, TerminateKillsTheWholeGroupWhenSigtermIsIgnored) {
  Lifeline line;
  auto options = shell("trap '' TERM; (trap '' TERM; sleep 100) & echo >&3; sleep 100");
  options.inherit = {line.write_end.get()};
  auto child = Subprocess::start(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(line.ready());
  EXPECT_EQ((*child)->terminate(50).signal, SIGKILL);
  EXPECT_TRUE(line.all_gone()) << "the grandchild lives on";
}

TEST(SubprocessTest, WhatAnEndedChildLeftBehindIsKilled) {
  Lifeline line;
  auto options = shell("sleep 100 & echo >&3; exit 0");
  options.inherit = {line.write_end.get()};
  auto child = Subprocess::start(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE((*child)->wait(kPatience_ms)->success());
  ASSERT_TRUE(line.ready());
  EXPECT_TRUE(line.all_gone());
}

TEST(SubprocessTest, DestructionKills) {
  Lifeline line;
  auto options = shell("echo >&3; sleep 100");
  options.inherit = {line.write_end.get()};
  auto child = Subprocess::start(options);
  ASSERT_TRUE(child.ok());
  ASSERT_TRUE(line.ready());
  child->reset();
  EXPECT_TRUE(line.all_gone());
}

TEST(SubprocessTest, TheChildStartsWithoutOurSignalMask) {
  sigset_t term;
  sigset_t old;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &term, &old);
  auto child = Subprocess::start(shell("sleep 100"));
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
  ASSERT_TRUE(child.ok());
  EXPECT_EQ((*child)->terminate(kPatience_ms).signal, SIGTERM);
}

}  // namespace
}  // namespace dex::base
