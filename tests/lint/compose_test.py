#!/usr/bin/env python3
"""deploy/docker without a container engine: the rules that every service keeps, and that what it names is there.

usage: compose_test.py REPOSITORY FOLDER_OF_PROGRAMS
"""

import re
import subprocess
import sys
import unittest
from functools import lru_cache
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import deployment  # noqa: E402

ROOT, BIN = Path(), Path()
# In every Debian.
ESSENTIAL = {"libc6", "libgcc-s1", "libstdc++6"}


def programs_of_stages(containerfile):
    """Name of a stage → the programs and packages that it holds, those of the stages below included."""
    stages, name = {}, None
    for line in containerfile.replace("\\\n", " ").splitlines():
        if begun := re.match(r"FROM (\S+) AS (\w+)", line):
            name = begun[2]
            below = stages.get(begun[1], {"programs": set(), "packages": set()})
            stages[name] = {key: set(value) for key, value in below.items()}
        elif line.startswith("COPY --from=build"):
            stages[name]["programs"] |= {Path(word).name for word in line.split() if "/bin/dex" in word}
        elif "apt-get install" in line:
            words = line.partition("--no-install-recommends")[2].partition("&&")[0]
            stages[name]["packages"] |= set(words.split())
    return stages


def libraries_of(program):
    text = subprocess.run(["readelf", "-d", program], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(.+)\]", text)


@lru_cache
def owner_of(library):
    """Debian's package that holds a shared library, or None."""
    found = subprocess.run(["dpkg", "-S", f"*/{library}"], capture_output=True, text=True, check=False).stdout
    return found.partition(":")[0] or None


class ComposeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = ROOT / "deploy/docker"
        text = deployment.interpolated((cls.folder / "compose.yaml").read_text(encoding="utf-8"), {})
        cls.compose = yaml.safe_load(text)
        cls.services = cls.compose["services"]
        cls.stages = programs_of_stages((cls.folder / "Containerfile").read_text(encoding="utf-8"))

    def test_images_are_fixed_versions(self):
        for name, service in self.services.items():
            self.assertIsNone(deployment.image_fault(service["image"]), name)
        for image in re.findall(r"^ARG \w+=(\S+)", (self.folder / "Containerfile").read_text(encoding="utf-8"), re.M):
            self.assertIsNone(deployment.image_fault(image))

    def test_each_service_is_bounded_hardened_and_watched(self):
        for name, service in self.services.items():
            with self.subTest(name):
                self.assertIn("mem_limit", service)
                self.assertGreater(service["pids_limit"], 0)
                self.assertTrue(service["read_only"])
                self.assertEqual(service["cap_drop"], ["ALL"])
                self.assertIn("no-new-privileges:true", service["security_opt"])
                self.assertEqual(service["healthcheck"]["test"][0], "CMD")
                self.assertNotIn("privileged", service)
                self.assertNotIn("ports", service)

    def test_arguments_are_those_of_the_programs(self):
        ours = {name: s["command"] for name, s in self.services.items() if s.get("command", [""])[0] in deployment.PROGRAMS}
        self.assertEqual({command[0] for command in ours.values()}, set(deployment.PROGRAMS))
        for name, command in ours.items():
            self.assertEqual(deployment.command_faults(command, BIN), [], name)
            stage = self.stages[self.services[name]["build"]["target"]]
            self.assertIn(command[0], stage["programs"], f"{name}: its image lacks the program")

    def test_everything_listens_on_loopback_at_a_port_of_its_own(self):
        listened = []
        for service in self.services.values():
            for argument in service.get("command", []):
                if found := re.match(r"--(?:[\w.-]*listen(?:-address)?)=(.+):(\d+)$", argument):
                    self.assertEqual(found[1], "127.0.0.1", argument)
                    listened.append(int(found[2]))
        grafana = self.services["grafana"]["environment"]
        self.assertEqual(grafana["GF_SERVER_HTTP_ADDR"], "127.0.0.1")
        listened.append(int(grafana["GF_SERVER_HTTP_PORT"]))
        self.assertEqual(len(listened), 10)
        self.assertEqual(len(set(listened)), len(listened), sorted(listened))
        asked = {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", yaml.dump(self.compose))}
        asked |= {int(port) for port in re.findall(r"127\.0\.0\.1:(\d+)", (self.folder / "prometheus-targets.json").read_text())}
        self.assertEqual(asked - set(listened), set(), "asked, and nobody listens there")

    def test_volumes_and_files_are_there(self):
        for name, service in self.services.items():
            for source in (volume.split(":")[0] for volume in service.get("volumes", [])):
                if not source.startswith("."):
                    self.assertIn(source, self.compose["volumes"], name)
                elif ".deps" not in source:  # setup makes that
                    self.assertTrue((self.folder / source).exists(), f"{name}: {source}")
            self.assertLessEqual(set(service.get("depends_on", {})), set(self.services))

    def test_every_library_of_a_program_is_in_its_image(self):
        self.assertEqual(self.stages["services"]["programs"], {"dex-scheduler", "dex-gateway", "dexctl"})
        self.assertEqual(self.stages["worker"]["programs"], {"dex-worker", "dex-trainer", "dex-engine"})
        for name in ("services", "worker"):
            for program in sorted(self.stages[name]["programs"]):
                for library in libraries_of(BIN / program):
                    owner = owner_of(library)
                    # LibTorch's are copied with its folder; libgomp's comes with them.
                    copied = name == "worker" and library.startswith(("libtorch", "libc10", "libgomp"))
                    self.assertTrue(copied or owner in ESSENTIAL | self.stages[name]["packages"],
                                    f"{program} needs {library} of {owner}, which the image {name} does not have")

    def test_the_worker_may_take_its_grace_before_it_is_killed(self):
        worker = self.services["worker"]
        grace = next(a for a in worker["command"] if a.startswith("--stop-grace-ms=")).partition("=")[2]
        self.assertEqual(worker["stop_grace_period"], "6m")
        self.assertLessEqual(int(grace) + 60_000, 6 * 60_000)

    def test_redis_keeps_what_dexds_redis_keeps(self):
        """The same settings as deploy/standalone/redis.cc but for where it listens and how much it may hold."""
        ours = (ROOT / "deploy/standalone/redis.cc").read_text(encoding="utf-8")
        of_dexd = dict(re.findall(r'<< "([a-z-]+) ([^"\\]+|\\"\\")\\n"', ours))
        of_dexd = {key: value.replace('\\"', '"') for key, value in of_dexd.items()}
        lines = (self.folder / "redis.conf").read_text(encoding="utf-8").splitlines()
        here = dict(line.split(" ", 1) for line in lines if line and not line.startswith("#"))
        self.assertGreater(len(of_dexd), 10)
        for key in set(of_dexd) - {"maxmemory", "unixsocketperm", "logfile"}:
            self.assertEqual(here.get(key), of_dexd[key], key)
        self.assertEqual(here["maxmemory"], "1gb")

    def test_the_schedulers_account_is_the_one_that_is_tested(self):
        """The rules of the account are those of AclTest, which runs every script with them."""
        tested = (ROOT / "tests/integration/scheduler_model/acl_test.cc").read_text(encoding="utf-8")
        tested = re.sub(r'"\s*"', "", tested)
        rules = re.search(r"user sched on >secret ([^\\]+)\\n", tested)[1].strip()
        self.assertIn(f"user sched on >$(cat \"$3/redis-password\") {rules}\n", (self.folder / "redis-start").read_text(encoding="utf-8"))


if __name__ == "__main__":
    ROOT, BIN = Path(sys.argv[1]), Path(sys.argv[2])
    unittest.main(argv=sys.argv[:1])
