#!/usr/bin/env python3
"""checklists.py finds what it is for. Runs it on lists and tests of its own.

usage: checklists_test.py
"""

import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

PROGRAM = Path(__file__).resolve().parent / "checklists.py"
IDS = [f"F{number:02}" for number in range(1, 96)] + [f"C{number:02}" for number in range(1, 45)]
SOURCE = """
TEST(KillTest, NothingIsLost) {}
TEST_P(
    LongFixtureNameTest,
    AnotherOne) {}
// TESTING(NoTest, AtAll)
"""
PYTHON = """
def test_it_is_there(client):
    pass

async def test_also_there():
    pass

def helper():
    pass
"""
CMAKE = """
add_test(NAME peft_test COMMAND x)
foreach(_test a b)
  dex_test(NAME e2e_${_test} SOURCES x.cc)
endforeach()
"""
SHOWN = "| {id} | something | `KillTest.NothingIsLost` | |"


class ChecklistsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        (self.root / "tests/unit").mkdir(parents=True)
        for path, text in (("unit/some_test.cc", SOURCE), ("unit/some_test.py", PYTHON), ("unit/CMakeLists.txt", CMAKE)):
            (self.root / "tests" / path).write_text(text, encoding="utf-8")

    def call(self, changes=None, more=""):
        """Exit code, what it counts, faults. changes: id → its whole row, None: left out."""
        rows = {subject: SHOWN.format(id=subject) for subject in IDS} | (changes or {})
        text = "# lists\n\n| id | what | shown by | not shown |\n| --- | --- | --- | --- |\n"
        text += "\n".join(row for row in rows.values() if row is not None) + "\n" + more
        (self.root / "tests/checklists.md").write_text(text, encoding="utf-8")
        done = subprocess.run([sys.executable, PROGRAM, self.root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.strip(), done.stderr

    def refused(self, *arguments):
        code, _, wrong = self.call(*arguments)
        self.assertEqual(code, 1)
        return wrong

    def test_whole_lists_are_counted(self):
        self.assertEqual(self.call(), (0, "139 rows: 139 shown, 0 partly, 0 missing", ""))
        code, counted, wrong = self.call({
            "F10": "| F10 | webhook | | missing |", "C34": "| C34 | alias | | missing: no aliases |",
            "C43": "| C43 | secrets | `KillTest.NothingIsLost` | partly: no keys |"})
        self.assertEqual((code, counted, wrong), (0, "139 rows: 136 shown, 1 partly, 2 missing", ""))

    def test_every_kind_of_test_is_found(self):
        names = "`LongFixtureNameTest.AnotherOne` `some_test.py::test_it_is_there` `some_test.py::test_also_there` `peft_test`"
        self.assertEqual(self.call({"F01": f"| F01 | a | {names} | |"})[0], 0)

    def test_a_test_that_is_not_in_the_sources_is_a_fault(self):
        for name in ("KillTest.Everything", "NoTest.AtAll", "some_test.py::helper", "other_test.py::test_it_is_there", "e2e_a"):
            self.assertIn(f"F01: there is no test {name}", self.refused({"F01": f"| F01 | a | `{name}` | |"}))

    def test_each_id_is_there_once_and_in_order(self):
        self.assertIn("C07 is not there", self.refused({"C07": None}))
        self.assertIn("F09 is there 2 times", self.refused(None, SHOWN.format(id="F09")))
        self.assertIn("F96 is none of api.md's", self.refused(None, SHOWN.format(id="F96")))
        self.assertIn("not in the order", self.refused({"F01": SHOWN.format(id="F02"), "F02": SHOWN.format(id="F01")}))

    def test_a_row_without_a_test_says_missing_and_one_with_a_test_does_not(self):
        self.assertIn("F01 has no test: it is 'missing'", self.refused({"F01": "| F01 | a | | |"}))
        self.assertIn("F01 has no test: it is 'missing'", self.refused({"F01": "| F01 | a | | partly: the rest |"}))
        self.assertIn("F01 is 'missing' and has tests", self.refused({"F01": "| F01 | a | `KillTest.NothingIsLost` | missing |"}))

    def test_what_is_lacking_is_said_in_one_form(self):
        for words in ("partly", "partly:", "some day", "missing:"):
            self.assertIn("the last cell must be empty", self.refused({"F01": f"| F01 | a | `KillTest.NothingIsLost` | {words} |"}))

    def test_only_tests_stand_among_the_tests(self):
        self.assertIn("found 'and others'", self.refused({"F01": "| F01 | a | `KillTest.NothingIsLost` and others | |"}))
        self.assertIn("KillTest.NothingIsLost stands twice",
                      self.refused({"F01": "| F01 | a | `KillTest.NothingIsLost` `KillTest.NothingIsLost` | |"}))
        self.assertIn("F01 doesn't say what it is", self.refused({"F01": "| F01 | | `KillTest.NothingIsLost` | |"}))
        self.assertIn("four cells are needed, found 3", self.refused({"F01": "| F01 | a | `KillTest.NothingIsLost` |"}))


if __name__ == "__main__":
    unittest.main()
