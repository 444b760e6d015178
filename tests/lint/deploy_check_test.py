#!/usr/bin/env python3
"""What deploy/check asks of cmake, ctest and clang-tidy in each of its modes, and what it prints last.

usage: deploy_check_test.py REPOSITORY
Runs a copy of it in a folder of its own, where those programs are stand-ins that write down how they were called.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

REPOSITORY = Path()
NOTE = 'printf "%s\\n" "$(basename "$0") $*" >>"$CALLS"\n'
CTEST = NOTE + r"""
[[ $* != *--print-labels* ]] || { printf 'All Labels:\n  unit\n  integration\n'; seq -f '  label-%g' 20000; exit; }
printf 'LONG=%s FIGURES=%s\n' "$DEX_LONG" "$DEX_FIGURES" >>"$CALLS"
[[ -z $DEX_FIGURES_COMMIT ]] || echo "of $DEX_FIGURES_COMMIT" >>"$CALLS"
[[ -z $FIGURE ]] || echo "$FIGURE" >>"$DEX_FIGURES"
[[ -z $REPORT ]] || { path=${ASAN_OPTIONS##*log_path=\'}; echo "$REPORT" >"${path%%\'*}.77"; }
printf 'Test #1: some_test\n\n%s tests passed, 0 tests failed out of 1\n\nTotal Test time (real) = 1 sec\n' "${PASSED:-100%}"
[[ -z $PASSED ]] || { echo 'Errors while running CTest' >&2; exit 8; }
"""
NINJA = 'echo "proto/a.pb.h: CUSTOM_COMMAND"; echo "/x/build/proto/a.pb.h: CUSTOM_COMMAND"; echo "bin/a: LINK"'
TIDY = NOTE + 'echo "clang-tidy x.cc"\n[[ -z $FINDING ]] || { echo "$ROOT/$FINDING"; echo "$ROOT/$FINDING"; exit "$TIDY_CODE"; }'
SUMMARY = ["100% tests passed, 0 tests failed out of 1", "", "Total Test time (real) = 1 sec"]


class CheckTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name) / "a checkout"
        (self.root / "deploy/setup").mkdir(parents=True)
        (self.root / "tests").mkdir()
        (self.root / "build").mkdir()
        for mode in ("asan", "tsan", "tidy"):
            (self.root / f"build-{mode}").mkdir()
        for path in ("deploy/check", "deploy/tidy.sh", "deploy/setup/common.sh"):
            shutil.copy(REPOSITORY / path, self.root / path)
        self.program(self.root / "tests/promises", 'echo "the table of $1"; cat "$1"; exit "${PROMISES:-0}"')
        self.programs = Path(folder.name) / "bin"
        self.programs.mkdir()
        for name, text in {"cmake": NOTE, "ctest": CTEST, "ninja": NINJA, "run-clang-tidy-16": TIDY,
                           "setarch": 'shift 2; exec "$@"'}.items():
            self.program(self.programs / name, text)
        self.calls_file = Path(folder.name) / "calls"

    def program(self, path, text):
        path.write_text("#!/usr/bin/env bash\n" + text + "\n", encoding="utf-8")
        path.chmod(0o755)

    def check(self, *arguments, **environment):
        """Exit code and lines of the output; self.calls are those of the stand-ins."""
        self.calls_file.write_text("", encoding="utf-8")
        known = {key: value for key, value in os.environ.items() if not key.startswith("DEX_") and not key.endswith("SAN_OPTIONS")}
        known |= {"PATH": f"{self.programs}:{known['PATH']}", "CALLS": str(self.calls_file), "ROOT": str(self.root), **environment}
        done = subprocess.run([str(self.root / "deploy/check"), "--no-setup", *arguments], capture_output=True, text=True, env=known,
                              check=False)
        self.calls = self.calls_file.read_text(encoding="utf-8").replace(str(self.root), "ROOT")
        self.words = done.stderr
        return done.returncode, done.stdout.replace(str(self.root), "ROOT").splitlines()

    def test_without_a_mode_every_test_runs_in_its_short_form(self):
        code, lines = self.check()
        self.assertEqual((code, lines[-3:]), (0, SUMMARY))
        self.assertIn("-B ROOT/build -DDEX_DEPS_DIR=ROOT/.deps -DDEX_TEST_PATIENCE=1 -DDEX_SLOW_TESTS=OFF\n", self.calls)
        self.assertIn("cmake --build ROOT/build --parallel", self.calls)
        self.assertIn("ctest --test-dir ROOT/build --output-on-failure --no-tests=error\nLONG= FIGURES=\n", self.calls)
        self.assertEqual(self.check(PASSED="50%")[0], 8)

    def test_only_is_a_label_or_a_name(self):
        self.check("--only", "unit")
        self.assertIn("--no-tests=error --label-regex ^unit$\n", self.calls)
        self.check("--only", "uni")
        self.assertIn("--no-tests=error --tests-regex uni\n", self.calls)

    def test_the_long_form_shows_the_promises_in_front_of_the_summary(self):
        figure = '{"promise":"P1","name":"kills","value":2000}'
        (self.root / "build/figures.jsonl").write_text("of last time\n", encoding="utf-8")
        code, lines = self.check("--long", FIGURE=figure)
        self.assertEqual(code, 0)
        self.assertEqual(lines[-3:], SUMMARY)
        self.assertEqual(lines[-6:-3], ["the table of ROOT/build/figures.jsonl", figure, ""])
        self.assertEqual(lines.count(SUMMARY[0]), 1)
        self.assertLess(lines.index("Test #1: some_test"), lines.index(figure))
        self.assertIn("-B ROOT/build -DDEX_DEPS_DIR=ROOT/.deps -DDEX_TEST_PATIENCE=30 -DDEX_SLOW_TESTS=ON\n", self.calls)
        self.assertIn("LONG=1 FIGURES=ROOT/build/figures.jsonl\n", self.calls)

    def test_figures_of_the_long_form_say_of_which_commit_they_are(self):
        def git(*words):
            who = ["-c", "user.name=a", "-c", "user.email=a@b"]
            return subprocess.run(["git", "-C", str(self.root), *who, *words], check=True, capture_output=True, text=True).stdout
        git("init", "-q")
        git("add", "deploy")
        git("commit", "-qm", "one")
        commit = git("rev-parse", "--short=7", "HEAD").strip()
        self.check("--long")
        self.assertIn(f"\nof {commit}\n", self.calls)
        with open(self.root / "deploy/tidy.sh", "a", encoding="utf-8") as file:
            file.write("# changed\n")
        self.check("--long")
        self.assertIn(f"\nof {commit}+\n", self.calls)

    def test_the_long_form_fails_with_a_test_and_with_a_promise(self):
        code, lines = self.check("--long", PASSED="50%")
        self.assertEqual((code, lines[-1]), (8, "Errors while running CTest"))
        code, lines = self.check("--long", PROMISES="1")
        self.assertEqual((code, lines[-3:]), (1, SUMMARY))

    def test_sanitizers_build_by_themselves_and_run_two_labels(self):
        code, lines = self.check("--asan")
        self.assertEqual((code, lines[-3:]), (0, SUMMARY))
        self.assertIn("check: no process of ours was reported", lines)
        self.assertIn("-B ROOT/build-asan -DDEX_DEPS_DIR=ROOT/.deps -DDEX_SANITIZE=address,undefined", self.calls)
        self.assertIn("ctest --test-dir ROOT/build-asan --output-on-failure --no-tests=error --label-regex ^(unit|integration)$\n",
                      self.calls)
        self.assertEqual(self.check("--tsan")[0], 0)
        self.assertIn("-B ROOT/build-tsan -DDEX_DEPS_DIR=ROOT/.deps -DDEX_SANITIZE=thread", self.calls)
        self.assertIn("-DDEX_WORKER=OFF", self.calls)
        self.check("--tsan", "--only", "rpc_test")
        self.assertIn("--no-tests=error --tests-regex rpc_test\n", self.calls)

    def test_a_report_of_a_sanitizer_is_shown_and_fails_though_all_tests_passed(self):
        (self.root / "build-asan/reports").mkdir()
        (self.root / "build-asan/reports/asan.1").write_text("of last time", encoding="utf-8")
        code, lines = self.check("--asan", REPORT="ERROR: AddressSanitizer: heap-use-after-free")
        self.assertEqual((code, lines[-3:]), (1, SUMMARY))
        self.assertEqual(lines[-6:-3], ["--- ROOT/build-asan/reports/asan.77", "ERROR: AddressSanitizer: heap-use-after-free", ""])
        self.assertNotIn("of last time", "\n".join(lines))
        self.assertIn("1 processes were reported", self.words)

    def test_tidy_needs_no_build_and_fails_by_its_faults_only(self):
        code, lines = self.check("--tidy", "--only", "base/", FINDING="services/base/a.cc:1:2: warning: x [y]", TIDY_CODE="0")
        self.assertEqual(code, 0)
        self.assertEqual(lines.count("services/base/a.cc:1:2: warning: x [y]"), 1)
        self.assertIn("1 findings", lines[-1])
        self.assertIn("-B ROOT/build-tidy -DDEX_DEPS_DIR=ROOT/.deps -DDEX_UNITY=OFF", self.calls)
        self.assertRegex(self.calls, r"cmake --build ROOT/build-tidy --parallel \d+ --target proto/a.pb.h\n")
        self.assertIn("/(?=.*(base/))(services|scheduler|worker|client|deploy)/\n", self.calls)
        self.assertNotIn("ctest", self.calls)
        code, lines = self.check("--tidy")
        self.assertEqual((code, lines[-1].split(";")[0]), (0, "check: 0 findings"))
        self.assertEqual(self.check("--tidy", FINDING="a.cc:1:2: error: x [y]", TIDY_CODE="1")[0], 1)

    def test_what_does_not_go_together_is_refused(self):
        self.assertEqual(self.check("--long", "--asan")[0], 1)
        self.assertIn("--long and --asan", self.words)
        self.assertEqual(self.check("--only")[0], 1)
        self.assertEqual(self.check("--longer")[0], 1)
        self.assertEqual(self.calls, "")
        code, lines = self.check("--help")
        self.assertEqual(code, 0)
        for word in ("--long", "--asan", "--tsan", "--tidy", "--only", "--no-setup"):
            self.assertTrue(any(line.startswith(f"  {word} ") for line in lines), word)


if __name__ == "__main__":
    REPOSITORY = Path(sys.argv.pop(1)).resolve()
    unittest.main()
