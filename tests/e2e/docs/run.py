#!/usr/bin/env python3
"""Runs what docs/*.md tell people to type, as they would, on a running platform.

usage: run.py REPOSITORY BIN DEPS GRPC HTTP SCRATCH     # BIN: build/bin, DEPS: .deps, addresses as host:port

Nothing of a page is replaced. The environment says where things are: PATH has BIN and a `python` with dex_client (and, where
deploy/setup has put it, openai) in front; DEX_SERVER, DEX_HTTP and OPENAI_BASE_URL name the platform. Each page starts in a
folder of its own that looks like the checkout; what a block exports or sets is there in the next one of its page.
"""

import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pages

PAGES = ("tour.md", "first-adapter.md", "which-preset.md", "reading-the-curves.md", "from-openai.md", "operations.md", "data.md",
         "command-line.md")
STEP_SECONDS = 300


def install_client(root, deps, scratch):
    """client/python by pip, from a copy: a build leaves files beside its sources."""
    copy, site = scratch / "checkout", scratch / "site"
    shutil.copytree(root / "proto", copy / "proto")
    shutil.copytree(root / "client/python", copy / "client/python",
                    ignore=shutil.ignore_patterns("__pycache__", "v1", "rpc", "build", "*.egg-info"))
    subprocess.run([deps / "setup-venv/bin/python", "-m", "pip", "install", "--disable-pip-version-check", "--quiet", "--no-index",
                    "--no-deps", "--no-build-isolation", "--target", site, copy / "client/python"], check=True)
    return site


def environment(root, binaries, deps, grpc, http, scratch):
    # What a developer has set must not lead a page to a platform of theirs.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("DEX_", "OPENAI_"))}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    clients = deps / "clients-venv/lib" / version / "site-packages"
    shims = scratch / "shims"
    shims.mkdir()
    for name in ("python", "python3"):
        (shims / name).symlink_to(deps / "setup-venv/bin/python")
    path = [str(install_client(root, deps, scratch)), str(deps / "setup-venv/lib" / version / "site-packages"), str(clients)]
    have = {"openai"} if (clients / "openai").is_dir() else set()
    return kept | {"PATH": f"{shims}:{binaries}:{kept['PATH']}", "PYTHONPATH": ":".join(path), "HOME": str(scratch), "NO_COLOR": "1",
                   "PYTHONDONTWRITEBYTECODE": "1", "DEX_SERVER": grpc, "DEX_HTTP": f"http://{http}",
                   "OPENAI_BASE_URL": f"http://{http}/v1", "OPENAI_API_KEY": "none"}, have


def checkout(root, deps, folder):
    """A folder in which the paths of the pages lead to the right place, and which may be written to."""
    folder.mkdir()
    (folder / ".deps").symlink_to(deps)
    for name in ("docs", "client", "deploy"):
        (folder / name).symlink_to(root / name)
    return folder


def run_step(step, folder, environ):
    """(exit code, output). The shell's variables go to the next step by a file, which is all that that one then has."""
    state = folder / ".state"
    before, environ = (f'. "{state}"', {}) if state.exists() else ("", environ)
    script = f'{before}\nset -eu -o pipefail -o allexport\ntrap \'export -p > "{state}"\' EXIT\n{step.block.text}'
    with subprocess.Popen(["bash", "-c", script], cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, start_new_session=True) as shell:
        try:
            output, late = shell.communicate(timeout=STEP_SECONDS)[0], ""
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            output, late = shell.communicate()[0], f"\nstill running after {STEP_SECONDS} s"
    return -1 if late else shell.returncode, output.decode(errors="replace") + late


def run_page(name, root, deps, environ, have, scratch):
    """Faults of one page; it ends at its first, since what follows builds on it."""
    text = (root / "docs" / name).read_text(encoding="utf-8")
    folder = checkout(root, deps, scratch / name.removesuffix(".md"))
    for step in pages.plan_of(f"docs/{name}", text):
        if isinstance(step, pages.Block):
            (folder / step.options["save"]).write_text(step.text, encoding="utf-8")
            continue
        missing = step.block.options.get("needs")
        if missing and missing not in have:
            print(f"  {step.block.place}: skipped, {missing} is not installed (deploy/setup/all --only clients)")
            continue
        begun = time.monotonic()
        code, output = run_step(step, folder, environ)
        print(f"  {step.block.place}: {time.monotonic() - begun:.1f} s, exit code {code}", flush=True)
        fault = None
        if code not in step.exit_codes:
            fault = f"ended with {code}, not {' or '.join(map(str, step.exit_codes))}"
        elif (line := pages.missing_line(step.expected, output)) is not None:
            fault = f"its output has no line like: {line.strip()}"
        if fault:
            return [f"{step.block.place}: {fault}\n--- typed\n{step.block.text}--- said\n{output}---"]
    return []


class Helps:
    """dexctl's own word on which commands and flags there are."""

    def __init__(self, program):
        self.program, self.known = program, {}

    def text(self, words):
        """The help of a command; None: there is no such one."""
        key = tuple(words)
        if key not in self.known:
            asked = subprocess.run([self.program, *words, "--help"], text=True, capture_output=True, check=False)
            # Of a command that is not there it says the help of the one above.
            own = f"Usage: {' '.join(['dexctl', *words])} " in asked.stdout
            self.known[key] = asked.stdout if asked.returncode == 0 and own else None
        return self.known[key]

    def fault(self, command):
        """What a command line has that dexctl has not; None: nothing."""
        words = command.split()
        path = []
        for word in words:
            if "Subcommands:" not in self.text(path) or word.startswith("-"):
                break
            if word in ("…", "NOUN", "COMMAND") or self.text([*path, word]) is None:
                return None if word in ("…", "NOUN", "COMMAND") else f"'{' '.join(['dexctl', *path, word])}' is no command"
            path.append(word)
        offered = self.text(path) + self.text([])
        for flag in (word.partition("=")[0] for word in words if word.startswith("--")):
            if f"{flag} " not in offered + " " and f"{flag}\n" not in offered and f"{flag}," not in offered:
                return f"'{' '.join(['dexctl', *path])}' has no {flag}"
        return None


def command_faults(root, program):
    """Every dexctl command that a page shows, whether it is run or not."""
    helps, count = Helps(program), 0
    for page in sorted((root / "docs").glob("*.md")):
        text = page.read_text(encoding="utf-8")
        shown = [block.text for block in pages.blocks_of(page.name, text) if block.language in ("sh", "")]
        shown += [code for code in pages.re.findall(r"`(dexctl [^`\n]+)`", text)]
        for command in (command for each in shown for command in pages.commands_of(each)):
            count += 1
            if fault := helps.fault(command):
                yield f"docs/{page.name}: {fault}, in: dexctl {command}"
    print(f"  {count} dexctl commands are shown")


def main():
    root, binaries, deps = (pathlib.Path(path).resolve() for path in sys.argv[1:4])
    grpc, http, scratch = sys.argv[4], sys.argv[5].removeprefix("http://"), pathlib.Path(sys.argv[6]).resolve()
    found = list(command_faults(root, binaries / "dexctl"))
    environ, have = environment(root, binaries, deps, grpc, http, scratch)
    for name in sys.argv[7:] or PAGES:
        print(name, flush=True)
        found += run_page(name, root, deps, environ, have, scratch)
    print("\n".join(found))
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
