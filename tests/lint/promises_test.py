#!/usr/bin/env python3
"""tests/promises finds what it is for, and shows what was measured. Runs it on a small repository of its own.

usage: promises_test.py tests/promises
"""

import os
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

PROGRAM = ""
README = """# tests

before
<!-- promises: written by tests/promises --write -->
<!-- promises: end -->
behind
"""
SOURCE = """
TEST(KillTest, NothingIsLost) { support::figure("P1", "kills", 200); }
TEST_F(
    LongFixtureNameTest,
    AnotherOne) {}
TEST_P(TableTest, DoesWhatItSays) { figure(
    "queue", "attempts_per_second", 1); }
// TESTING(NoTest, AtAll)
""" + "".join(f'support::figure("P{i}", "times", {i});\n' for i in range(2, 21))


def promises(changes=None):
    """promises.toml in which every promise has a test, and those of `changes` (subject → lines, None: left out)."""
    rows = {f"P{i}": 'promise = "text"\ntests = ["KillTest.NothingIsLost"]' for i in range(1, 21)}
    rows["queue"] = 'promise = "fast"\ntests = ["TableTest.DoesWhatItSays", "LongFixtureNameTest.AnotherOne"]'
    rows.update(changes or {})
    return "\n".join(f"[{subject}]\n{lines}" for subject, lines in rows.items() if lines is not None)


class PromisesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tests/unit").mkdir(parents=True)
        self.write("tests/unit/some_test.cc", SOURCE)
        self.write("tests/README.md", README)
        self.write("tests/promises.toml", promises())

    def write(self, path, text):
        (self.root / path).write_text(text, encoding="utf-8")
        return str(self.root / path)

    def readme(self):
        return (self.root / "tests/README.md").read_text(encoding="utf-8")

    def call(self, *arguments, figures=None):
        """Exit code, lines of the output, words on what is wrong."""
        environment = {key: value for key, value in os.environ.items() if key != "DEX_FIGURES"}
        if figures is not None:
            environment["DEX_FIGURES"] = figures
        command = [sys.executable, PROGRAM, "--root", str(self.root), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr

    def refused(self, *arguments):
        code, _, wrong = self.call(*arguments)
        self.assertEqual(code, 1)
        return wrong

    def test_a_table_with_a_row_for_each_promise_in_their_order(self):
        code, lines, wrong = self.call()
        self.assertEqual((code, wrong), (0, ""))
        self.assertEqual(lines[:2], ["| | promise | shown by | measured |", "| --- | --- | --- | --- |"])
        self.assertEqual([line.split(" ")[1] for line in lines[2:]], [f"P{i}" for i in range(1, 21)] + ["queue"])
        self.assertEqual(lines[2], "| P1 | text | `KillTest.NothingIsLost` | – |")

    def test_what_is_not_shown_is_said(self):
        self.write("tests/promises.toml", promises({"P4": 'promise = "a"\ntests = ["TableTest.DoesWhatItSays"]\nlacking = "a GPU"'}))
        self.assertIn("| P4 | a | `TableTest.DoesWhatItSays`<br>not shown: a GPU | – |", self.call()[1])

    def test_a_promise_without_a_row_or_a_test_is_a_fault(self):
        self.write("tests/promises.toml", promises({"P7": None, "P20": 'promise = "a"\ntests = []'}))
        wrong = self.refused()
        self.assertIn("P7 is missing", wrong)
        self.assertIn("P20 has no test", wrong)

    def test_a_test_that_is_not_in_the_sources_is_a_fault(self):
        self.write("tests/promises.toml", promises({"P3": 'promise = "a"\ntests = ["KillTest.Nothing", "NoTest.AtAll"]'}))
        wrong = self.refused("--check")
        self.assertIn("P3: there is no test KillTest.Nothing", wrong)
        self.assertIn("P3: there is no test NoTest.AtAll", wrong)

    def test_a_misspelt_key_is_a_fault(self):
        self.write("tests/promises.toml", promises({"P3": 'promise = "a"\ntest = ["KillTest.NothingIsLost"]'}))
        self.assertIn("P3: test is not known", self.refused())

    def test_each_promise_is_measured_beside_one_of_its_tests(self):
        self.write("tests/unit/some_test.cc", SOURCE.replace('support::figure("P7", "times", 7);\n', ""))
        self.assertIn("P7: no file of its tests notes a figure of it", self.refused("--check"))
        self.write("tests/unit/another_test.cc", 'TEST(OtherTest, OfNothing) { support::figure("P7", "times", 7); }')
        self.assertIn("P7: no file of its tests notes a figure of it", self.refused("--check"))
        self.write("tests/unit/another_test.cc", 'TEST(OtherTest, OfSeven) { support::figure("P7", "times", 7); }')
        self.write("tests/promises.toml", promises({"P7": 'promise = "text"\ntests = ["OtherTest.OfSeven"]'}))
        self.assertEqual(self.call()[0], 0)

    def test_a_figure_in_the_sources_belongs_to_a_promise(self):
        self.write("tests/unit/some_test.cc", SOURCE.replace('"queue"', '"P77"'))
        self.assertIn("a test measures P77", self.refused())

    def test_figures_stand_in_their_rows(self):
        figures = self.write("figures.jsonl", "\n".join([
            '{"promise":"P1","name":"kills","value":200}',
            '{"promise":"P1","name":"recovery_max_s","value":2.5}',
            '{"promise":"queue","name":"attempts_per_second","value":1300,"date":"2026-11-29","commit":"0123456"}',
            '{"promise":"queue","name":"attempts_per_second","value":1200.5,"date":"2026-11-28","commit":"abcdef0"}', ""]))
        today = time.strftime("%Y-%m-%d", time.gmtime())
        code, lines, _ = self.call(figures)
        self.assertEqual(code, 0)
        self.assertTrue(lines[2].endswith(f"| kills 200<br>recovery_max_s 2.5<br>at an unknown commit, {today} |"), lines[2])
        newest = "| attempts_per_second 1200.5 to 1300, 2 times<br>at 0123456, 2026-11-29 |"
        self.assertTrue(lines[-1].endswith(newest), lines[-1])
        self.assertEqual(self.call(figures=figures)[1], lines)

    def test_a_line_that_is_no_figure_is_a_fault(self):
        figures = self.write("figures.jsonl", '{"promise":"P1","name":"kills","value":nan}\n{"promise":"P99","name":"a","value":1}\n')
        wrong = self.refused(figures)
        self.assertIn("figures.jsonl:1: no figure", wrong)
        self.assertIn("figures.jsonl:2: P99 is not promised", wrong)
        figures = self.write("figures.jsonl", '{"promise":"P1","name":"kills","value":1,"date":"today","commit":"0123456"}\n'
                             '{"promise":"P1","name":"kills","value":1,"date":"2026-11-29","commit":"main"}\n')
        wrong = self.refused(figures)
        self.assertIn("figures.jsonl:1: no commit or no day", wrong)
        self.assertIn("figures.jsonl:2: no commit or no day", wrong)

    def test_missing_figures_are_a_fault_but_of_the_check_no_matter(self):
        missing = str(self.root / "nowhere.jsonl")
        self.assertIn("no such file", self.refused(missing))
        self.call("--write")
        self.assertEqual(self.call("--check", figures=missing)[0], 0)

    def test_the_readme_keeps_what_was_measured_until_it_is_measured_again(self):
        figures = self.write("figures.jsonl",
                             '{"promise":"P2","name":"kills","value":7,"date":"2026-11-29","commit":"0123456+"}\n')
        self.assertEqual(self.call(figures, "--write")[0], 0)
        self.assertEqual(self.call("--check")[0], 0)
        first = self.readme()
        self.assertTrue(first.startswith("# tests\n\nbefore\n<!-- promises: written") and first.endswith("<!-- promises: end -->\nbehind\n"))
        self.assertIn("| P2 | text | `KillTest.NothingIsLost` | kills 7<br>at 0123456+, 2026-11-29 |", first)
        self.assertIn("\nThe newest of these were measured on 2", first)
        self.assertEqual(self.call("--write")[0], 0)
        self.assertEqual(self.readme(), first)
        self.write("tests/promises.toml", promises({"P2": 'promise = "new"\ntests = ["KillTest.NothingIsLost"]'}))
        self.call("--write")
        kept = "| P2 | new | `KillTest.NothingIsLost` | kills 7<br>at 0123456+, 2026-11-29 |"
        self.assertIn(kept, self.readme())
        # What another session measured stands beside it.
        self.write("figures.jsonl", '{"promise":"P3","name":"kills","value":8,"date":"2026-12-01","commit":"abcdef0"}\n')
        self.call(figures, "--write")
        self.assertIn(kept, self.readme())
        self.assertIn("| P3 | text | `KillTest.NothingIsLost` | kills 8<br>at abcdef0, 2026-12-01 |", self.readme())
        self.assertEqual(self.readme().count("The newest of these"), 1)

    def test_a_measured_cell_says_how_old_it_is(self):
        self.call("--write")
        text = self.readme()
        self.write("tests/README.md", text.replace("| P2 | text | `KillTest.NothingIsLost` | – |",
                                                   "| P2 | text | `KillTest.NothingIsLost` | kills 7 |"))
        self.assertIn("P2 doesn't say of which commit and day", self.refused("--check"))

    def test_a_fuzz_target_is_a_test(self):
        row = {"P15": 'promise = "text"\ntests = ["KillTest.NothingIsLost", "fuzz_jsonl"]'}
        self.write("tests/promises.toml", promises(row))
        self.assertIn("P15: there is no test fuzz_jsonl", self.refused())
        (self.root / "tests/fuzz").mkdir()
        self.write("tests/fuzz/CMakeLists.txt", "dex_fuzz(NAME jsonl LIBS dex::data)\n# dex_fuzz(NAME tar)\n")
        self.assertEqual(self.call()[0], 0)
        self.write("tests/promises.toml", promises({"P15": row["P15"].replace("jsonl", "tar")}))
        self.assertIn("P15: there is no test fuzz_tar", self.refused())

    def test_a_readme_of_yesterday_is_a_fault(self):
        self.assertIn("does not show the promises as they are", self.refused("--check"))
        self.call("--write")
        self.assertEqual(self.call("--check")[0], 0)
        self.write("tests/promises.toml", promises({"P5": 'promise = "b"\ntests = ["KillTest.NothingIsLost"]'}))
        self.assertIn("does not show the promises as they are", self.refused("--check"))
        self.write("tests/README.md", "# tests\n")
        self.assertIn("must stand in it once", self.refused("--check"))

    def test_nothing_is_written_while_something_is_wrong(self):
        self.write("tests/promises.toml", promises({"P7": None}))
        self.assertIn("P7 is missing", self.refused("--write"))
        self.assertEqual(self.readme(), README)


if __name__ == "__main__":
    PROGRAM = sys.argv.pop(1)
    unittest.main()
