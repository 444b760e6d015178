#!/usr/bin/env python3
"""Rules and alerts of deploy/monitoring: promtool accepts them and its tests pass, each alert fires and stays silent in them, and
says who is called and what to do. Needs promtool, of Debian's prometheus."""

import re
import subprocess
import unittest
from pathlib import Path

from promql import FOREIGN, PROMETHEUS_OWN, metric_names
from repository import MONITORING, ROOT, exported, recorded, rules, used

HERE = Path(__file__).parent


def promtool(*arguments):
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, cwd=HERE, check=False)
    return done.returncode, done.stdout + done.stderr


def alerts():
    return [(name, text) for _, name, _, text in rules() if text.startswith("alert")]


def alert_cases():
    """Alert → whether it fires, of each case of the tests."""
    cases = {}
    for path in HERE.glob("*_test.yml"):
        text = path.read_text(encoding="utf-8")
        for name, silent in re.findall(r"alertname: (\w+),?\s+eval_time: \w+,?\s+exp_alerts:( \[\])?", text):
            cases.setdefault(name, set()).add(not silent)
    return cases


class RulesTest(unittest.TestCase):
    def test_promtool_accepts_rules_and_configuration(self):
        for arguments in (
            ["check", "rules", *map(str, (MONITORING / "rules").glob("*.yml"))],
            ["check", "config", str(MONITORING / "prometheus.yml")],
        ):
            code, said = promtool(*arguments)
            self.assertEqual(code, 0, said)

    def test_promtools_tests_pass(self):
        code, said = promtool("test", "rules", *sorted(path.name for path in HERE.glob("*_test.yml")))
        self.assertEqual(code, 0, said)

    def test_each_alert_fires_and_stays_silent_in_them(self):
        cases = alert_cases()
        names = {name for name, _ in alerts()}
        self.assertGreater(len(names), 25)
        self.assertEqual({name for name in names if cases.get(name) != {True, False}}, set())
        self.assertEqual(set(cases) - names, set(), "tests of alerts that are not there")

    def test_each_alert_says_how_urgent_it_is_and_has_its_page_of_the_runbook(self):
        runbook = (MONITORING / "runbook.md").read_text(encoding="utf-8")
        titles = re.findall(r"^## (\w+)$", runbook, flags=re.M)
        for name, text in alerts():
            self.assertRegex(text, r"labels: \{severity: (critical|warning|info)\}", name)
            self.assertIn("summary: ", text, name)
            self.assertIn(f"runbook: deploy/monitoring/runbook.md#{name.lower()}", text)
        self.assertEqual(sorted(titles), sorted(name for name, _ in alerts()), "the runbook has a section for each alert and no other")

    def test_names_are_those_of_our_processes_or_recorded(self):
        known = exported() | recorded() | PROMETHEUS_OWN | FOREIGN
        for path, name, expression, _ in rules():
            self.assertEqual(metric_names(expression) - known, set(), f"{path.name}: {name}")

    def test_each_recording_is_used(self):
        self.assertEqual(recorded() - used(), set())

    def test_the_users_own_faults_are_those_of_the_scheduler(self):
        source = (ROOT / "scheduler/core/public_state.cc").read_text(encoding="utf-8")
        users = set(re.findall(r'"(\w+)"', re.search(r"kUser = \{(.*?)\};", source, flags=re.S).group(1)))
        failures = next(expression for _, name, expression, _ in rules() if name == "kind:dex_job_failures:increase1h")
        excluded = {outcome for list_of in re.findall(r'outcome!~"([^"]*)"', failures) for outcome in list_of.split("|")}
        self.assertEqual(excluded, users | {"succeeded", "cancelled", "expired"})


class PromqlTest(unittest.TestCase):
    def test_finds_metrics_and_nothing_else(self):
        for expression, names in {
            'sum by (pool, le) (rate(dex_a_bucket{pool=~"$pool",x="up"}[5m])) > 0.5e3': {"dex_a_bucket"},
            "a:b:c > on (pool) group_left (x) (dex_b offset 10m) unless vector(1)": {"a:b:c", "dex_b"},
            'absent(up{job="x"} == 1) or time() - dex_c * 3600': {"up", "dex_c"},
            "rate(dex_d[$__rate_interval]) and NaN": {"dex_d"},
        }.items():
            self.assertEqual(metric_names(expression), names, expression)


if __name__ == "__main__":
    unittest.main()
