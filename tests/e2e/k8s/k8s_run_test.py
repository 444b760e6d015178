#!/usr/bin/env python3
"""The pods of deploy/k8s/base as processes on loopback, tunnels included: do they find each other, and does nobody else get in?

usage: k8s_run_test.py REPOSITORY FOLDER_OF_PROGRAMS FOLDER_OF_DEPS

A pod's own loopback is a free port for each port of each pod, a Service's name the port of the pod that it selects. What only a
cluster does is left out: users, limits, network policies. Certificates and accounts are those that deploy/k8s/secrets prints.
"""

import base64
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
import kustomization  # noqa: E402

ROOT, BIN, DEPS = Path(), Path(), Path()
PATIENCE_S = 120


def free_port():
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


class Pod:
    """The containers of one pod: their folders below `folder`, their ports in `ports` (by what the manifest says)."""

    def __init__(self, cluster, name, spec, folder):
        self.cluster, self.spec, self.folder = cluster, spec, folder
        self.name, self.ports, self.running = name, cluster.ports.setdefault(name, {}), []
        self.places = {"/var/lib/dex/redis": folder / "redis", "/opt/dex/web": folder / "web",
                       "/var/lib/dex/data": cluster.folder / "data", "/var/lib/dex/models": DEPS / "models"}
        for inside in ("redis", "web"):
            (folder / inside).mkdir(parents=True)
        (folder / "web/index.html").write_text("<title>DEX</title>", encoding="utf-8")
        self.mount()

    def mount(self):
        """ConfigMaps and Secrets as files, with this test's folders and ports in what is configuration."""
        paths = {m["name"]: m["mountPath"] for c in self.containers() for m in c.get("volumeMounts", [])}
        for volume in self.spec["volumes"]:
            if "configMap" in volume:
                files = self.cluster.config[volume["configMap"]["name"]]
            elif "secret" in volume:
                files = self.cluster.secrets[volume["secret"]["secretName"]]
            else:
                continue
            here = self.folder / volume["name"]
            here.mkdir()
            self.places[paths[volume["name"]]] = here
            volume["files"] = files
        for volume in self.spec["volumes"]:
            for key, text in volume.get("files", {}).items():
                own = "configMap" not in volume or volume["name"] != "tunnels" or key == f"{self.role()}.conf"
                if own:
                    text = self.here(text) if "configMap" in volume else text
                    path = self.folder / volume["name"] / key
                    path.write_text(text, encoding="utf-8")
                    path.chmod(0o600)

    def role(self):
        return re.match(r"dex-([a-z]+)", self.name)[1]

    def containers(self):
        return self.spec.get("initContainers", []) + self.spec["containers"]

    def port(self, number):
        return self.cluster.port(self.name, number)

    def here(self, text):
        for inside in sorted(self.places, key=len, reverse=True):
            text = re.sub(rf"(^|[=:\s]){re.escape(inside)}(?=/|$)", rf"\g<1>{self.places[inside]}", text, flags=re.MULTILINE)
        text = text.replace("$(POD_NAME)", f"{self.name}-0").replace("$(POD_INDEX)", "0")
        text = re.sub(r"^port (\d+)$", lambda found: f"port {self.port(found[1])}", text, flags=re.MULTILINE)
        text = text.replace("bind * -::*", "bind 127.0.0.1")
        text = re.sub(r"dex-([a-z]+)(?:-0\.dex-\w+)?:(\d+)", lambda f: f"127.0.0.1:@{self.cluster.port('dex-' + f[1], f[2])}", text)
        if self.role() == "worker":  # what it advertises is a port of the gateway's pod
            text = re.sub(r"(--advertise=127\.0\.0\.1:)(\d+)", lambda f: f"{f[1]}@{self.cluster.port('dex-gateway', f[2])}", text)
        text = re.sub(r"(?:127\.0\.0\.1|0\.0\.0\.0):(\d+)", lambda found: f"127.0.0.1:{self.port(found[1])}", text)
        return text.replace(":@", ":")

    def start(self):
        for container in self.containers():
            command = [self.here(word) for word in container["command"]]
            log = self.folder / f"{container['name']}.log"
            with log.open("wb") as out:
                self.running.append((container, subprocess.Popen(
                    command, stdout=out, stderr=out, env={**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}"})))

    def wait_ready(self):
        container, process = self.running[-1]
        probe = [self.here(word) for word in container["readinessProbe"]["exec"]["command"]]
        if probe[0] == "redis-cli":
            probe[1:1] = ["-p", str(self.port(6379))]
        end, said = time.monotonic() + PATIENCE_S, None
        while time.monotonic() < end and all(each.poll() is None for _, each in self.running):
            said = subprocess.run(probe, capture_output=True, text=True, timeout=10, check=False)
            if said.returncode == 0:
                return
            time.sleep(0.2)
        logs = "".join(f"\n{path.name}: {path.read_text(errors='replace')[-2000:]}" for path in self.folder.glob("*.log"))
        raise AssertionError(f"{self.name} is not ready: {said}{logs}")

    def stop(self):
        """The program first, then the side-cars."""
        for _, process in reversed(self.running):
            process.terminate()
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Cluster:
    def __init__(self, folder):
        self.folder = folder
        (folder / "data").mkdir()
        objects = kustomization.build(ROOT / "deploy/k8s/base")
        self.config = {o["metadata"]["name"]: o["data"] for o in objects if o["kind"] == "ConfigMap"}
        printed = subprocess.run([ROOT / "deploy/k8s/secrets"], check=True, capture_output=True, text=True).stdout
        self.secrets = {o["metadata"]["name"]: {k: base64.b64decode(v).decode() for k, v in o["data"].items()}
                        for o in yaml.safe_load_all(printed) if o}
        self.pods, self.ports = {}, {}
        for item in objects:
            if item["kind"] in ("Deployment", "StatefulSet"):
                name = item["metadata"]["name"]
                self.pods[name] = Pod(self, name, item["spec"]["template"]["spec"], folder / name)

    def port(self, pod, number):
        """The free port that stands for a pod's; it may be asked for before the pod is there."""
        return self.ports.setdefault(pod, {}).setdefault(str(number), free_port())


class K8sRunTest(unittest.TestCase):
    def setUp(self):
        folder = Path(tempfile.mkdtemp(prefix="dexk-"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        self.cluster = Cluster(folder)
        self.pods = self.cluster.pods
        for pod in self.pods.values():
            self.addCleanup(pod.stop)

    def tls(self, pod, number, own, their):
        """curl through a door, with the certificate `own` (or none), to whom it takes for `their`. Its exit code and output."""
        folder = self.cluster.folder / f"as-{own}"
        folder.mkdir(exist_ok=True)
        for key, text in self.cluster.secrets[f"dex-{own or 'prometheus'}-tls"].items():
            (folder / key).write_text(text, encoding="utf-8")
        port = self.pods[pod].port(number)
        command = ["curl", "-sS", "-m", "5", "--http1.1", "--cacert", folder / "ca.crt", "--connect-to", f"::127.0.0.1:{port}",
                   f"https://{their}/metrics"]
        if own:
            command += ["--cert", folder / "tls.crt", "--key", folder / "tls.key"]
        asked = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
        return asked.returncode, asked.stdout + asked.stderr

    def test_pods_find_each_other_and_each_door_opens_to_one_name(self):
        for name in ("dex-redis", "dex-scheduler", "dex-gateway", "dex-worker"):
            self.pods[name].start()
            self.pods[name].wait_ready()

        body = json.dumps({"model": json.loads((DEPS / "models/models.json").read_text())["models"][0]["name"],
                           "prompt": "One, two, three,", "max_tokens": 4}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.pods['dex-gateway'].port(8080)}/v1/completions", data=body,
                                         headers={"content-type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as reply:  # through both tunnels and the engine
            self.assertTrue(json.loads(reply.read())["choices"][0]["text"])

        for pod, said in (("dex-scheduler", "dex_redis_up 1"), ("dex-gateway", "dex_gateway_"), ("dex-worker", "dex_worker_state")):
            code, text = self.tls(pod, 9443, "prometheus", "metrics.dex")
            self.assertEqual(code, 0, text)
            self.assertIn(said, text)
            for stranger in ("", "worker" if pod != "dex-worker" else "gateway"):
                code, text = self.tls(pod, 9443, stranger, "metrics.dex")
                self.assertNotEqual(code, 0, f"{pod} opens to {stranger!r}: {text[:200]}")
        # A worker at the gateways' door, and a gateway at the workers'.
        for number, wrong in ((15052, "worker"), (15053, "gateway")):
            self.assertNotEqual(self.tls("dex-scheduler", number, wrong, "scheduler.dex")[0], 0)
        self.assertNotEqual(self.tls("dex-worker", 15054, "worker", "worker.dex")[0], 0)
        log = (self.pods["dex-scheduler"].folder / "tunnel.log").read_text(errors="replace")
        self.assertGreaterEqual(len(re.findall("Subject checks failed", log)), 2, log[-2000:])


if __name__ == "__main__":
    ROOT, BIN, DEPS = (Path(argument).resolve() for argument in sys.argv[1:4])
    unittest.main(argv=sys.argv[:1])
