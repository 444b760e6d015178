#!/usr/bin/env python3
"""The commands of deploy/docker/compose.yaml as processes on loopback: do they start, in that order, and find each other?

usage: compose_test.py REPOSITORY FOLDER_OF_PROGRAMS FOLDER_OF_DEPS

No container engine is needed: a folder of a container becomes one of this test's, a port a free one, in commands, health checks and
Prometheus' targets alike. Grafana is not in Debian and is left out. So is what only the engine does: users, limits, images.
"""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "support"))
import deployment  # noqa: E402

ROOT, BIN, DEPS = Path(), Path(), Path()
PATIENCE_S = 120


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


class ComposeRunTest(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="dexc-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.running, self.ports = {}, {}
        self.addCleanup(self.stop_all)
        text = (ROOT / "deploy/docker/compose.yaml").read_text(encoding="utf-8")
        self.services = yaml.safe_load(deployment.interpolated(text, {}))["services"]
        places = {
            "/run/dex": self.made("run"), "/var/lib/dex/redis": self.made("redis"), "/var/lib/dex/data": self.made("data"),
            "/var/lib/dex/models": DEPS / "models", "/etc/dex": ROOT / "deploy/docker", "/prometheus": self.made("prometheus"),
            "/etc/prometheus": self.made("etc"), "/opt/dex/web": self.made("web")}
        self.places = {inside: str(here) for inside, here in places.items()}
        (Path(self.places["/opt/dex/web"]) / "index.html").write_text("<title>DEX</title>", encoding="utf-8")
        self.copy_prometheus_files()

    def made(self, name):
        (self.folder / name).mkdir(mode=0o700)
        return self.folder / name

    def copy_prometheus_files(self):
        etc = Path(self.places["/etc/prometheus"])
        shutil.copy(ROOT / "deploy/monitoring/prometheus.yml", etc)
        shutil.copytree(ROOT / "deploy/monitoring/rules", etc / "rules")
        (etc / "targets").mkdir()
        targets = (ROOT / "deploy/docker/prometheus-targets.json").read_text(encoding="utf-8")
        (etc / "targets/compose.json").write_text(self.here(targets), encoding="utf-8")

    def here(self, text):
        """What a container reads, with this test's folders and ports in it."""
        for inside in sorted(self.places, key=len, reverse=True):
            text = re.sub(rf"(^|[=:\s]){re.escape(inside)}(?=/|$)", rf"\g<1>{self.places[inside]}", text)
        return re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{self.ports.setdefault(found[1], free_port())}", text)

    def start(self, name):
        command = [self.here(word) for word in self.services[name]["command"]]
        if name == "prometheus":
            command.insert(0, "prometheus")
        log = (self.folder / f"{name}.log").open("wb")
        path = f"{BIN}:{ROOT / 'deploy/docker'}:{os.environ['PATH']}"
        self.running[name] = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PATH": path})
        log.close()

    def healthy(self, name):
        """Asks as compose does until the answer is yes, the process ends or patience does."""
        check = [self.here(word) for word in self.services[name]["healthcheck"]["test"][1:]]
        end, said = time.monotonic() + PATIENCE_S, ""
        while time.monotonic() < end:
            if self.running[name].poll() is not None:
                break
            asked = subprocess.run(check, capture_output=True, text=True, timeout=10, check=False)
            if asked.returncode == 0:
                return
            said = asked.stdout + asked.stderr
            time.sleep(0.2)
        self.fail(f"{name} is not healthy: {said}\n{(self.folder / f'{name}.log').read_text(errors='replace')[-3000:]}")

    def start_all(self):
        """Every service once those that it waits for are healthy."""
        waiting = [name for name in self.services if name != "grafana"]
        while waiting:
            able = [name for name in waiting if set(self.services[name].get("depends_on", {})) <= set(self.running)]
            self.assertTrue(able, f"{waiting} wait for each other")
            for name in able:
                self.start(name)
                self.healthy(name)
                waiting.remove(name)

    def stop_all(self):
        for process in reversed(self.running.values()):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def get(self, port, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[port]}{path}", timeout=30) as reply:
            return reply.read().decode()

    def dexctl(self, *words):
        command = [BIN / "dexctl", "--server", f"127.0.0.1:{self.ports['50051']}", *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")
        return done.stdout

    def test_nobody_talks_to_redis_without_the_password(self):
        self.start("redis")
        self.healthy("redis")
        cli = ["redis-cli", "-s", self.here("/run/dex/redis.sock"), "--no-auth-warning"]
        for account in ([], ["--user", "default", "--pass", ""], ["--user", "sched", "--pass", "none"], ["--user", "probe", "--pass", "x"]):
            said = subprocess.run([*cli, *account, "get", "dex:x"], capture_output=True, text=True, timeout=10, check=False)
            self.assertRegex(said.stdout + said.stderr, "NOAUTH|WRONGPASS|NOPERM", account)

    def test_they_start_find_each_other_and_keep_what_they_were_given(self):
        self.start_all()
        models = json.loads(self.get("8080", "/v1/models"))["data"]
        listed = json.loads((DEPS / "models/models.json").read_text(encoding="utf-8"))["models"]
        self.assertLessEqual({model["name"] for model in listed}, {model["id"] for model in models})
        self.assertIn("<title>DEX</title>", self.get("8080", "/"))

        rows = self.folder / "rows.jsonl"
        texts = (f"This is row {number} of a file that outlives its platform." for number in range(40))
        rows.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        file = self.dexctl("--output", "id", "files", "upload", rows).strip()
        self.assertTrue(file.startswith("file-"), file)

        end = time.monotonic() + PATIENCE_S
        while True:  # the first scrape is up to an interval away
            targets = json.loads(self.get("9090", "/api/v1/targets"))["data"]["activeTargets"]
            up = {target["labels"]["job"] for target in targets if target["health"] == "up"}
            if up == {"dex-scheduler", "dex-gateway", "dex-worker"}:
                break
            self.assertLess(time.monotonic(), end, targets)
            time.sleep(0.5)
        rules = json.loads(self.get("9090", "/api/v1/rules"))["data"]["groups"]
        self.assertIn("DexSchedulerDown", {rule["name"] for group in rules for rule in group["rules"]})

        self.stop_all()  # as `compose down`, which keeps the volumes
        self.assertEqual({name: process.returncode for name, process in self.running.items()}, dict.fromkeys(self.running, 0))
        self.running = {}
        self.start_all()
        self.assertEqual(json.loads(self.get("8080", f"/v1/files/{file}"))["id"], file)


if __name__ == "__main__":
    ROOT, BIN, DEPS = (Path(argument).resolve() for argument in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
