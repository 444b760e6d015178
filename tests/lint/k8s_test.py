#!/usr/bin/env python3
"""deploy/k8s without a cluster: schemas, and the rules that every pod keeps (jobs.md §15).

usage: k8s_test.py REPOSITORY FOLDER_OF_PROGRAMS
"""

import base64
import re
import shutil
import subprocess
import sys
import unittest
from pathlib import Path

import kubernetes_validate
import yaml

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
import deployment  # noqa: E402
import kustomization  # noqa: E402

ROOT, BIN = Path(), Path()
OVERLAYS = ("base", "overlays/dev", "overlays/keda", "overlays/prometheus")
KUBERNETES = "1.33"  # the oldest version that is meant: side-cars that are init containers are stable there
# Kinds of others, whose schemas kubernetes-validate does not have: what each `spec` may hold. Any other unknown kind fails.
CUSTOM = {
    "ScaledJob": {"pollingInterval", "minReplicaCount", "maxReplicaCount", "successfulJobsHistoryLimit", "failedJobsHistoryLimit",
                  "rollout", "scalingStrategy", "triggers", "jobTargetRef"},
    "TriggerAuthentication": {"secretTargetRef"},
    "PodMonitor": {"selector", "podMetricsEndpoints"},
}


def pods(objects):
    """(name, labels, spec of the pod) of everything that makes pods."""
    for item in objects:
        spec = item.get("spec", {})
        template = spec.get("jobTargetRef", spec).get("template")
        if template:
            yield item["metadata"]["name"], template["metadata"]["labels"], template["spec"]


def containers(pod):
    return pod.get("initContainers", []) + pod["containers"]


def named(objects, kind):
    return {item["metadata"]["name"]: item for item in objects if item["kind"] == kind}


def values_of(thing, key):
    """Every value of that key at any depth."""
    if isinstance(thing, dict):
        for name, value in thing.items():
            if name == key:
                yield value
            yield from values_of(value, key)
    elif isinstance(thing, list):
        for value in thing:
            yield from values_of(value, key)


def tunnels(objects):
    """File name → its sections: name → {option: value}, client sections and doors alike."""
    found = {}
    for name, text in named(objects, "ConfigMap")["dex-tunnels"]["data"].items():
        sections, here = {}, {}
        for line in text.splitlines():
            if begun := re.fullmatch(r"\[(.+)\]", line):
                here = sections.setdefault(begun[1], {})
            elif sections:
                key, _, value = line.partition(" = ")
                here[key] = value
        found[name] = sections
    return found


class K8sTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.all = {name: kustomization.build(ROOT / "deploy/k8s" / name) for name in OVERLAYS}
        printed = subprocess.run([ROOT / "deploy/k8s/secrets"], check=True, capture_output=True, text=True, timeout=60).stdout
        cls.secrets = {item["metadata"]["name"]: item["data"] for item in yaml.safe_load_all(printed) if item}

    where = ""  # of what is looked at, for messages

    def _formatMessage(self, msg, standardMsg):
        return f"{self.where} {super()._formatMessage(msg, standardMsg)}"

    def each(self):
        for overlay, objects in self.all.items():
            for name, _, pod in pods(objects):
                self.where = f"{overlay}: {name}"
                yield objects, pod

    def test_schemas_know_every_field(self):
        for overlay, objects in self.all.items():
            for item in objects:
                with self.subTest(f"{overlay}: {item['kind']} {item['metadata']['name']}"):
                    if item["kind"] in CUSTOM:
                        self.assertLessEqual(set(item["spec"]), CUSTOM[item["kind"]])
                    else:
                        kubernetes_validate.validate(item, KUBERNETES, strict=True)
            for job in named(objects, "ScaledJob").values():
                plain = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": job["spec"]["jobTargetRef"]}
                kubernetes_validate.validate(plain, KUBERNETES, strict=True)

    def test_real_kustomize_makes_the_same(self):
        program = shutil.which("kustomize")
        if program is None:
            self.skipTest("no kustomize in PATH")
        for overlay, objects in self.all.items():
            text = subprocess.run([program, "build", ROOT / "deploy/k8s" / overlay], check=True, capture_output=True, text=True).stdout
            key = lambda item: (item["kind"], item["metadata"]["name"])  # noqa: E731
            self.assertEqual(sorted(yaml.safe_load_all(text), key=key), sorted(objects, key=key), overlay)

    def test_pods_are_restricted_and_bounded(self):
        for _, pod in self.each():
            self.assertIs(pod["automountServiceAccountToken"], False)
            self.assertIs(pod["securityContext"]["runAsNonRoot"], True)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"})
            for container in containers(pod):
                self.assertIsNone(deployment.image_fault(container["image"]))
                self.assertEqual(set(container["resources"]["limits"]), {"cpu", "memory"})
                self.assertEqual(container["securityContext"], {
                    "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}})

    def test_probes_ask_the_right_page_and_liveness_depends_on_nobody(self):
        for _, pod in self.each():
            for container in pod["containers"]:
                for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                    command = container[probe]["exec"]["command"]
                    page = "/readyz" if probe == "readinessProbe" else "/healthz"
                    listen = [a for a in container["command"] if a.startswith("--metrics-listen=")]
                    wanted = f"http://{listen[0].partition('=')[2]}{page}" if listen else "ping"
                    self.assertEqual(command[-1], wanted)
                    self.assertLess(int(command[3]) if listen else 0, container[probe]["timeoutSeconds"])

    def test_arguments_are_those_of_the_programs(self):
        seen = set()
        for _, pod in self.each():
            for container in pod["containers"]:
                if container["command"][0] not in deployment.PROGRAMS:
                    continue
                seen.add(container["command"][0])
                self.assertEqual(deployment.command_faults(container["command"], BIN), [])
                variables = set(re.findall(r"\$\((\w+)\)", " ".join(container["command"])))
                self.assertEqual(variables, {variable["name"] for variable in container.get("env", [])} & variables)
                for argument in container["command"]:
                    if "listen=" in argument:
                        self.assertIn("=127.0.0.1:", argument)
        self.assertEqual(seen, set(deployment.PROGRAMS))

    def test_what_is_named_exists(self):
        for objects, pod in self.each():
            self.assertIn(pod["serviceAccountName"], named(objects, "ServiceAccount"))
            volumes = {volume["name"]: volume for volume in pod["volumes"]}
            claimed = {"redis"} if pod["serviceAccountName"] == "dex-redis" else set()  # volumeClaimTemplates
            mounted = {mount["name"] for container in containers(pod) for mount in container.get("volumeMounts", [])}
            self.assertEqual(mounted, set(volumes) | claimed, "mounted, and there")
            for volume in volumes.values():
                if "configMap" in volume:
                    self.assertIn(volume["configMap"]["name"], named(objects, "ConfigMap"))
                elif "secret" in volume:
                    keys = self.secrets[volume["secret"]["secretName"]]
                    self.assertLessEqual({item["key"] for item in volume["secret"].get("items", [])}, set(keys))
                elif "persistentVolumeClaim" in volume:
                    self.assertIn(volume["persistentVolumeClaim"]["claimName"], named(objects, "PersistentVolumeClaim"))
            files = {f"/etc/dex/tunnels/{name}" for name in tunnels(objects)}
            for container in pod.get("initContainers", []):
                self.assertIn(container["command"][1], files)
        for item in named(self.all["overlays/keda"], "TriggerAuthentication").values():
            for reference in item["spec"]["secretTargetRef"]:
                self.assertIn(reference["key"], self.secrets[reference["name"]])
        for endpoint in named(self.all["overlays/prometheus"], "PodMonitor")["dex"]["spec"]["podMetricsEndpoints"]:
            for reference in [*values_of(endpoint, "secret"), *values_of(endpoint, "keySecret")]:
                self.assertIn(reference["key"], self.secrets[reference["name"]])

    def test_selectors_and_ports_find_pods(self):
        for overlay, objects in self.all.items():
            made = [(labels, pod) for _, labels, pod in pods(objects)]
            for kind in ("Service", "PodDisruptionBudget"):
                for name, item in named(objects, kind).items():
                    selector = item["spec"]["selector"].get("matchLabels", item["spec"]["selector"])
                    found = [pod for labels, pod in made if selector.items() <= labels.items()]
                    self.assertEqual(len(found), 1, f"{overlay}: {kind} {name}")
                    ports = {port["name"]: port["containerPort"] for c in containers(found[0]) for port in c.get("ports", [])}
                    for port in item["spec"].get("ports", []):
                        self.assertEqual(ports[port["targetPort"]], port["port"], name)

    def test_programs_and_tunnels_meet(self):
        """Whoever a program dials is the end of a tunnel in its pod, and each tunnel leads to a door that opens to its certificate."""
        objects = self.all["overlays/keda"]
        doors = {}
        for file, sections in tunnels(objects).items():
            for section in sections.values():
                if "client" not in section:
                    doors[file.removesuffix(".conf"), section["accept"].rpartition(":")[2]] = section
        for _, labels, pod in pods(objects):
            role = labels["app.kubernetes.io/component"]
            if role == "redis":
                continue
            sections = tunnels(objects)[f"{role}.conf"]
            command = pod["containers"][0]["command"]
            listened = {a.partition("=")[2] for a in command if re.match(r"--(?:[a-z]+-)?listen=", a)}
            for name, section in sections.items():
                if "client" not in section:
                    self.assertIn(section["connect"], listened, f"{role}: {name} leads to nobody")
                    continue
                host, _, port = section["connect"].partition(":")
                to = re.sub(r"^dex-(\w+?)(?:-\d+\.dex-\w+)?$", r"\1", host)
                door = doors[to, port]
                own = "worker" if role == "trainer" else role  # its certificate
                self.assertEqual(door["checkHost"], f"{own}.dex", f"{role}: {name}")
                self.assertEqual(section["checkHost"], f"{to}.dex")
            if dialled := [a.partition("=")[2] for a in command if a.startswith("--scheduler=")]:
                self.assertEqual(sections["scheduler"]["accept"], dialled[0])
        advertised = [a for a in pods_command(objects, "worker") if a.startswith("--advertise=")][0].partition("=")[2]
        ends = {section["accept"] for name, section in tunnels(objects)["gateway.conf"].items() if name.startswith("worker-")}
        self.assertEqual(ends, {advertised.replace("$(POD_INDEX)", str(index)) for index in range(8)})

    def test_every_way_through_a_tunnel_is_open_in_the_network_and_no_other(self):
        objects = self.all["overlays/keda"]
        wanted = {("scheduler", "redis", 6379)}
        for file, sections in tunnels(objects).items():
            for section in sections.values():
                if "client" in section:
                    host, _, port = section["connect"].partition(":")
                    wanted.add((file.removesuffix(".conf"), re.match(r"dex-([a-z]+)", host)[1], int(port)))
        ways = {"ingress": set(), "egress": set()}
        for policy in named(objects, "NetworkPolicy").values():
            own = policy["spec"]["podSelector"].get("matchLabels", {}).get("app.kubernetes.io/component")
            for side, key in (("ingress", "from"), ("egress", "to")):
                for rule in policy["spec"].get(side, []):
                    for peer in rule[key]:
                        other = peer.get("podSelector", {}).get("matchLabels", {}).get("app.kubernetes.io/component")
                        if own and other:
                            pair = (other, own) if side == "ingress" else (own, other)
                            ways[side] |= {(*pair, port["port"]) for port in rule["ports"]}
        self.assertEqual(ways["egress"], wanted)
        self.assertEqual(ways["ingress"], wanted)
        deny = named(objects, "NetworkPolicy")["dex-default-deny"]["spec"]
        self.assertEqual(deny, {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]})
        keda = named(objects, "NetworkPolicy")["dex-redis-from-keda"]["spec"]["ingress"][0]
        self.assertEqual(list(values_of(keda, "kubernetes.io/metadata.name")), ["keda"])

    def test_a_worker_may_take_its_grace_and_is_not_evicted_for_room(self):
        for name in ("dex-worker", "dex-trainer"):
            item = next(i for i in self.all["overlays/keda"] if i["metadata"]["name"] == name and i["kind"] in ("StatefulSet", "ScaledJob"))
            spec = item["spec"]
            template = spec.get("jobTargetRef", spec)["template"]
            command = template["spec"]["containers"][0]["command"]
            grace = next(a for a in command if a.startswith("--stop-grace-ms=")).partition("=")[2]
            self.assertEqual(template["spec"]["terminationGracePeriodSeconds"], int(grace) // 1000 + 60)
            self.assertEqual(template["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/safe-to-evict"], "false")

    def test_scaling_counts_what_waits_and_ends_nothing_that_runs(self):
        job = named(self.all["overlays/keda"], "ScaledJob")["dex-trainer"]["spec"]
        self.assertEqual(job["rollout"], {"strategy": "gradual"})
        self.assertEqual(job["scalingStrategy"], {"strategy": "accurate"})
        self.assertEqual(job["jobTargetRef"]["backoffLimit"], 0)
        self.assertEqual(job["jobTargetRef"]["template"]["spec"]["restartPolicy"], "Never")
        command = pods_command(self.all["overlays/keda"], "trainer")
        self.assertIn("--once", command)
        pool = next(a for a in command if a.startswith("--pools=")).partition("=")[2]
        [trigger] = job["triggers"]
        self.assertEqual(trigger["metadata"]["listName"], f"dex:{{s0}}:ready:{pool}")
        self.assertEqual(trigger["metadata"]["listLength"], "1")
        self.assertEqual(trigger["authenticationRef"]["name"], "dex-redis")

    def test_accounts_are_those_that_are_tested(self):
        tested = (ROOT / "tests/integration/scheduler_model/acl_test.cc").read_text(encoding="utf-8")
        rules = dict(re.findall(r"user (\w+) on >secret ([^\\]+)\\n", re.sub(r'"\s*"', "", tested)))
        made = base64.b64decode(self.secrets["dex-redis"]["users.acl"]).decode()
        for account in ("sched", "keda"):
            password = self.secrets["dex-redis" if account == "sched" else "dex-keda"]
            password = base64.b64decode(password["scheduler-password" if account == "sched" else "password"]).decode()
            self.assertIn(f"user {account} on >{password} {rules[account].strip()}\n", made)
        self.assertIn("user default off resetpass ~* &* +@all\n", made, "its rights are those by which Redis reads its own log")

    def test_redis_is_set_as_in_containers(self):
        def settings(text):
            return dict(line.split(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        here = settings(named(self.all["base"], "ConfigMap")["dex-redis"]["data"]["redis.conf"])
        there = settings((ROOT / "deploy/docker/redis.conf").read_text(encoding="utf-8"))
        for key in set(there) - {"port"}:
            self.assertEqual(here.get(key), there[key], key)

    def test_the_rules_are_all_there(self):
        printed = subprocess.run([sys.executable, ROOT / "deploy/k8s/prometheus-rule"], check=True, capture_output=True, text=True).stdout
        made = {r.get("alert") or r["record"] for g in yaml.safe_load(printed)["spec"]["groups"] for r in g["rules"]}
        text = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "deploy/monitoring/rules").glob("*.yml"))
        self.assertEqual(made, set(re.findall(r"^\s*- (?:alert|record): (\S+)", text, re.MULTILINE)))


def pods_command(objects, component):
    return next(pod["containers"][0]["command"] for _, labels, pod in pods(objects)
                if labels["app.kubernetes.io/component"] == component)


if __name__ == "__main__":
    ROOT, BIN = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    unittest.main(argv=sys.argv[:1])
