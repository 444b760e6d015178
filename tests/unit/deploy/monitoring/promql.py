"""The names of metrics in PromQL, and the alerts and rules of deploy/monitoring, read without a YAML library."""

import re

WORDS = {"and", "or", "unless", "offset", "bool", "inf", "nan", "atan2", "start", "end"}
PROMETHEUS_OWN = {"up", "ALERTS"}
# Of NVIDIA's DCGM exporter, which runs where GPUs are (jobs.md §12).
FOREIGN = {"DCGM_FI_DEV_XID_ERRORS"}


def metric_names(expression):
    """Every metric that the expression selects."""
    text = re.sub(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'', " ", expression)
    text = re.sub(r"\{[^}]*\}", " ", text)
    text = re.sub(r"\[[^\]]*\]", " ", text)
    text = re.sub(r"\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    names = set()
    for found in re.finditer(r"(?<![\w:.$])[a-zA-Z_:][\w:]*", text):
        is_function = text[found.end() :].lstrip().startswith("(")
        if not is_function and found.group().lower() not in WORDS:
            names.add(found.group())
    return names


def rules_of(text):
    """(record or alert name, expression, the rule's whole text) of a file of rules."""
    rules = []
    for block in re.split(r"^ *- (?=(?:alert|record): )", text, flags=re.M)[1:]:
        name = re.match(r"(?:alert|record): (\S+)", block).group(1)
        folded = re.search(r"^( *)expr: (>-\n(?:\1 +.*\n)+|.*)", block, flags=re.M).group(2)
        rules.append((name, " ".join(folded.removeprefix(">-").split()), block))
    return rules
