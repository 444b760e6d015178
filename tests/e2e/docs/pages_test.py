#!/usr/bin/env python3
"""pages.py and run.py's reading of dexctl's help: what counts as agreement between a page and what is there, and what does not."""

import pathlib
import sys
import tempfile
import unittest

import check
import pages
import run

PAGE = """# Title, with `code` & more

```sh run ends=0|7
dexctl doctor
```

```text
ok  Redis  …
```

```python save=a.py
print("x")
```

```sh run
python a.py
```

Words between.

```text
for reading only
```
"""


class PlanTest(unittest.TestCase):
    def test_steps_saves_and_expectations_in_order(self):
        doctor, saved, python = pages.plan_of("p.md", PAGE)
        self.assertEqual((doctor.exit_codes, doctor.expected), ([0, 7], ["ok  Redis  …"]))
        self.assertEqual((saved.options["save"], saved.text), ("a.py", 'print("x")\n'))
        self.assertEqual((python.exit_codes, python.expected), ([0], []), "text behind other words expects nothing")

    def test_what_an_author_may_get_wrong_is_named_with_its_line(self):
        for text, complaint in (("\n```sh run\nls\n", "p.md:2: the fence is never closed"), ("```sh run fials=3\n```\n", "fials means nothing"),
                                ("```python run\n```\n", "only sh is run"), ("```sh save=../x\n```\n", "save wants the name of a file")):
            with self.assertRaisesRegex(pages.BadPage, complaint):
                pages.plan_of("p.md", text)


class OutputTest(unittest.TestCase):
    OUTPUT = "ID      STATE  ROWS\nfile-1  ready  64\n  step 8/16  loss 0.5\ndone\n"

    def expect(self, *lines):
        return pages.missing_line(lines, self.OUTPUT)

    def test_wildcards_and_spaces(self):
        self.assertIsNone(self.expect("ID STATE …", "file-… ready 64", "…", "step 8/16 loss 0.…", "done"))

    def test_a_line_is_matched_whole(self):
        self.assertEqual(self.expect("file-1 ready"), "file-1 ready")

    def test_order_counts(self):
        self.assertEqual(self.expect("done", "step 8/16 …"), "step 8/16 …")

    def test_signs_mean_themselves(self):
        self.assertEqual(self.expect("step 8/1. loss 0.5"), "step 8/1. loss 0.5")


class LinkTest(unittest.TestCase):
    def test_links_and_anchors(self):
        text = "[a](b.md#c) ![p](x.svg) `[no](no.md)`\n```\n[no](no.md)\n```\n"
        self.assertEqual(pages.links_of(text), ["b.md#c", "x.svg"])
        self.assertEqual(pages.anchors_of(PAGE), {"title-with-code--more"})

    def test_faults_of_a_repository(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder).resolve()
            (root / "docs").mkdir()
            (root / "README.md").write_text("[docs](docs/README.md)")
            (root / "docs/README.md").write_text("[a](a.md) [gone](gone.md) [bad](a.md#nowhere)")
            (root / "docs/a.md").write_text("# A\n```sh run\nif\n```\n")
            (root / "docs/b.md").write_text("# B\n")
            found = "\n".join(check.faults(root))
            for wanted in ("gone.md leads nowhere", "a.md has no heading", "a.md:2: bash can't read it", "does not link b.md"):
                self.assertIn(wanted, found)
            self.assertEqual(len(found.splitlines()), 4, found)


DEXCTL = """#!/bin/sh
case "$*" in
  "files --help") printf 'Usage: dexctl files SUBCOMMAND\\nSubcommands:\\n  upload  x\\n' ;;
  "files upload --help") printf 'Usage: dexctl files upload [OPTIONS]\\n  -y,--yes  x\\n  --model,--base TEXT  x\\n' ;;
  "chat --help") printf 'Usage: dexctl chat [OPTIONS]\\n  --message TEXT\\n' ;;
  *) printf 'Usage: dexctl [OPTIONS] SUBCOMMAND\\n  --output TEXT  x\\nSubcommands:\\n  files  x\\n  chat  y\\n' ;;
esac
"""


class CommandTest(unittest.TestCase):
    def test_commands_of_a_block(self):
        text = 'A=$(dexctl files upload a.jsonl --output id)\ndexctl chat x \\\n  --message "y" | head   # dexctl no\n# dexctl no\nhead dexctl.bash\n'
        self.assertEqual(list(pages.commands_of(text)), ["files upload a.jsonl --output id", 'chat x  --message "y"'])

    def test_what_dexctl_has_not_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            program = pathlib.Path(folder) / "dexctl"
            program.write_text(DEXCTL)
            program.chmod(0o755)
            helps = run.Helps(program)
            for good in ("files upload x --base m --yes --output id", "chat x --message=y", "files …"):
                self.assertIsNone(helps.fault(good), good)
            self.assertIn("'dexctl files uplaod' is no command", helps.fault("files uplaod x"))
            self.assertIn("'dexctl chat' has no --mess", helps.fault("chat x --mess y"))


class StateTest(unittest.TestCase):
    def test_variables_go_from_one_block_to_the_next(self):
        with tempfile.TemporaryDirectory() as folder:
            def step(text):
                return run.run_step(pages.Step(pages.Block("p.md", 1, "sh", {}, text)), pathlib.Path(folder), {"PATH": "/usr/bin:/bin"})
            self.assertEqual(step("A='x  y'; B=1\n"), (0, ""))
            self.assertEqual(step('echo "$A"; unset B; exit 3\n'), (3, "x  y\n"))
            self.assertEqual(step('echo "${B:-gone}"\n'), (0, "gone\n"))
            self.assertEqual(step('echo "${HOME:-gone}"\n'), (0, "gone\n"), "nothing of the caller's own")


if __name__ == "__main__":
    sys.exit(unittest.main())
