"""What of the repository the tests of deploy/monitoring read."""

import json
import re
from pathlib import Path

from promql import FOREIGN, PROMETHEUS_OWN, metric_names, rules_of

ROOT = Path(__file__).resolve().parents[4]
MONITORING = ROOT / "deploy/monitoring"


def rules():
    """(file, name, expression, text) of every rule."""
    return [(path, *rule) for path in sorted((MONITORING / "rules").glob("*.yml")) for rule in rules_of(path.read_text(encoding="utf-8"))]


def recorded():
    return {name for _, name, _, text in rules() if text.startswith("record")}


def dashboards():
    """(file, dashboard)."""
    return [(path, json.loads(path.read_text(encoding="utf-8"))) for path in sorted((MONITORING / "grafana/dashboards").glob("*.json"))]


def expressions(board):
    """(where, expression) of all that a dashboard asks Prometheus."""
    found = [(f'panel "{panel["title"]}"', target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]
    found += [("annotation " + row["name"], row["expr"]) for row in board["annotations"]["list"]]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            selector = re.fullmatch(r"label_values\((.+), *\w+\)", variable["query"]["query"]).group(1)
            found.append(("variable " + variable["name"], selector))
    return found


def used():
    """Every name in rules and dashboards but Prometheus' own and those of foreign exporters: of metrics and of recordings."""
    names = set()
    for _, _, expression, _ in rules():
        names |= metric_names(expression)
    for _, board in dashboards():
        for _, expression in expressions(board):
            names |= metric_names(expression)
    return names - PROMETHEUS_OWN - FOREIGN


def exported():
    """Names in the sources of our processes, histograms by their three series too."""
    names = set()
    for room in ("services", "scheduler", "worker"):
        for path in (ROOT / room).rglob("*.cc"):
            names |= set(re.findall(r'"((?:dex_|vllm:)[a-z_]+)"', path.read_text(encoding="utf-8")))
    return names | {name + suffix for name in names for suffix in ("_bucket", "_sum", "_count")}


if __name__ == "__main__":
    print("\n".join(sorted(used() | recorded())))
