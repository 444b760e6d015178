#!/usr/bin/env python3
"""Dashboards of deploy/monitoring/grafana: what their script makes, whole, explained, legible, and asking for what is there. Needs
promtool, of Debian's prometheus."""

import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from promql import FOREIGN, PROMETHEUS_OWN, metric_names
from repository import MONITORING, dashboards, exported, expressions, recorded

GRAFANA = MONITORING / "grafana"
# Of Grafana itself: no plugin needs to be installed.
BUILT_IN = {"row", "stat", "timeseries", "heatmap", "state-timeline", "table"}


def cells(panel):
    place = panel["gridPos"]
    return {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}


def concrete(expression):
    """As Grafana would send it: variables replaced."""
    return re.sub(r"\$(pool|worker)\b", ".*", expression.replace("$__rate_interval", "1m"))


class DashboardsTest(unittest.TestCase):
    def test_they_are_what_their_script_makes(self):
        done = subprocess.run([sys.executable, "-B", str(GRAFANA / "make"), "--check"], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_there_are_four_with_names_of_their_own(self):
        boards = dashboards()
        self.assertEqual([path.stem for path, _ in boards], [board["uid"] for _, board in boards])
        self.assertEqual({board["uid"] for _, board in boards}, {"dex-jobs", "dex-training", "dex-serving", "dex-health"})
        self.assertEqual(len({board["title"] for _, board in boards}), 4)

    def test_panels_have_ids_of_their_own_and_none_overlaps(self):
        for path, board in dashboards():
            taken = {}
            self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]), path.name)
            self.assertEqual(board["panels"][0]["type"], "row")
            for panel in board["panels"]:
                place = panel["gridPos"]
                self.assertTrue(0 <= place["x"] and place["x"] + place["w"] <= 24, f'{path.name}: {panel["title"]} is outside')
                for cell in cells(panel):
                    self.assertNotIn(cell, taken, f'{path.name}: {panel["title"]} lies on {taken.get(cell)}')
                    taken[cell] = panel["title"]

    def test_each_row_is_filled_to_its_end(self):
        for path, board in dashboards():
            lines = {}
            for panel in board["panels"]:
                place = panel["gridPos"]
                lines.setdefault(place["y"], []).append((place["w"], place["h"]))
            for y, members in lines.items():
                self.assertEqual(sum(width for width, _ in members), 24, f"{path.name}: the line at {y} has a gap")
                self.assertEqual(len({height for _, height in members}), 1, f"{path.name}: panels of {y} differ in height")

    def test_each_panel_is_explained_has_a_unit_and_a_legend(self):
        for path, board in dashboards():
            for panel in board["panels"]:
                where = f'{path.name}: {panel["title"]}'
                self.assertIn(panel["type"], BUILT_IN, where)
                if panel["type"] == "row":
                    continue
                self.assertGreater(len(panel["description"]), 15, where)
                self.assertTrue(panel["fieldConfig"]["defaults"]["unit"], where)
                self.assertTrue(panel["fieldConfig"]["defaults"]["thresholds"]["steps"], where)
                self.assertTrue(panel["targets"], where)
                for target in panel["targets"]:
                    self.assertTrue(target["legendFormat"] or panel["type"] == "table", where)
                    self.assertEqual(target["datasource"]["uid"], "${datasource}", where)

    def test_they_ask_for_what_is_exported_or_recorded(self):
        known = exported() | recorded() | PROMETHEUS_OWN | FOREIGN
        for path, board in dashboards():
            for where, expression in expressions(board):
                names = metric_names(expression)
                self.assertTrue(names, f"{path.name}, {where}: no metric in {expression}")
                self.assertEqual(names - known, set(), f"{path.name}, {where}")

    def test_prometheus_understands_every_question(self):
        with tempfile.TemporaryDirectory() as folder:
            rules = Path(folder) / "rules.yml"
            with rules.open("w", encoding="utf-8") as out:
                out.write("groups:\n- name: questions\n  rules:\n")
                for number, (_, expression) in enumerate(one for _, board in dashboards() for one in expressions(board)):
                    out.write(f"  - record: question{number}\n    expr: |-\n      {concrete(expression)}\n")
            done = subprocess.run(["promtool", "check", "rules", str(rules)], capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_variables_in_questions_are_declared(self):
        for path, board in dashboards():
            declared = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
            for where, expression in expressions(board):
                self.assertEqual(set(re.findall(r"\$\{?(\w+)", expression)) - declared, set(), f"{path.name}, {where}")


if __name__ == "__main__":
    unittest.main()
