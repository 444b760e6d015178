"""Panels of Grafana dashboards as short calls, laid out from left to right in rows. Only what Grafana itself brings."""

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
# One meaning, one colour, on every dashboard; legends and names say the same in words.
COLOURS = {
    "succeeded": "green",
    "success": "green",
    "OK": "green",
    "running": "green",
    "up": "green",
    "stop": "green",
    "created": "green",
    "queued": "blue",
    "waiting": "blue",
    "length": "light-green",
    "validating_files": "light-blue",
    "paused": "purple",
    "pausing": "light-purple",
    "cancelling": "light-orange",
    "cancelled": "orange",
    "expired": "dark-orange",
    "release": "yellow",
    "draining": "yellow",
    "replayed": "light-blue",
    "quota": "orange",
    "refused": "red",
    "error": "red",
    "crash": "red",
    "poison_job": "dark-red",
    "worker_lost": "dark-red",
    "oom": "dark-orange",
    "disk_full": "semi-dark-red",
    "out_of_service": "red",
    "UNAVAILABLE": "red",
    "INTERNAL": "dark-red",
    "UNKNOWN": "dark-red",
    "DATA_LOSS": "dark-red",
    "DEADLINE_EXCEEDED": "orange",
}


def steps(*limits):
    """steps((0.8, "orange"), (0.95, "red")): green below the first limit."""
    return {"mode": "absolute", "steps": [{"color": "green", "value": None}] + [{"color": c, "value": v} for v, c in limits]}


def _target(index, query):
    expr, legend, *more = query
    target = {"refId": chr(ord("A") + index), "datasource": DATASOURCE, "expr": expr, "legendFormat": legend}
    return target | (more[0] if more else {"range": True})


def _panel(kind, title, description, queries, unit, width, height, thresholds, options, custom=None, limits=None):
    defaults = {"unit": unit, "thresholds": thresholds or steps()} | (limits or {})
    if custom is not None:
        defaults["custom"] = custom
    return {
        "type": kind,
        "title": title,
        "description": description,
        "datasource": DATASOURCE,
        "gridPos": {"w": width, "h": height},
        "targets": [_target(i, q) for i, q in enumerate(queries)],
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
    }


def stat(title, description, expr, unit="short", thresholds=None, width=4, decimals=None, mappings=None, no_value="0", graph=True):
    """One figure of now, coloured by its thresholds."""
    limits = {"color": {"mode": "thresholds"}, "noValue": no_value}
    if decimals is not None:
        limits["decimals"] = decimals
    if mappings:
        limits["mappings"] = [
            {"type": "value", "options": {str(k): {"text": t, "color": c, "index": i}}} for i, (k, (t, c)) in enumerate(mappings.items())
        ]
    options = {
        "colorMode": "value",
        "graphMode": "area" if graph else "none",
        "justifyMode": "auto",
        "textMode": "auto",
        "orientation": "auto",
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
    }
    return _panel("stat", title, description, [(expr, title)], unit, width, 4, thresholds, options, limits=limits)


def graph(title, description, queries, unit="short", thresholds=None, stack=False, bars=False, top=None, log=False, width=12, height=8):
    """Lines over time; `stack`: areas that add up; `bars`: what happened within each interval."""
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineWidth": 0 if bars else 2,
        "fillOpacity": 80 if bars else (25 if stack else 8),
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stack else "none", "group": "A"},
        "thresholdsStyle": {"mode": "dashed" if thresholds else "off"},
        "scaleDistribution": {"type": "log", "log": 10} if log else {"type": "linear"},
    }
    limits = {"color": {"mode": "palette-classic"}}
    if not log:
        limits["min"] = 0
    if top is not None:
        limits["max"] = top
    options = {
        "legend": {"displayMode": "table", "placement": "bottom", "calcs": ["lastNotNull", "max"], "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    panel = _panel("timeseries", title, description, queries, unit, width, height, thresholds, options, custom, limits)
    panel["fieldConfig"]["overrides"] = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}]}
        for name, colour in COLOURS.items()
        if any("{{" in query[1] for query in queries) and name in _likely(queries)
    ]
    return panel


def _likely(queries):
    """The values that the label of a legend can have, as far as this page colours them."""
    by_label = {
        "state": (
            "queued",
            "running",
            "validating_files",
            "paused",
            "pausing",
            "cancelling",
            "up",
            "draining",
            "out_of_service",
            "disk_full",
        ),
        "outcome": ("succeeded", "cancelled", "expired", "poison_job", "created", "replayed", "quota", "refused"),
        "end": ("success", "crash", "oom", "disk_full", "worker_lost", "release", "cancelled", "paused"),
        "finished_reason": ("stop", "length", "cancelled", "error"),
        "code": ("OK", "UNAVAILABLE", "INTERNAL", "UNKNOWN", "DATA_LOSS", "DEADLINE_EXCEEDED"),
    }
    return {value for _, legend, *_ in queries for label, values in by_label.items() if "{{" + label + "}}" in legend for value in values}


def heat(title, description, expr, unit="s", width=12, height=8):
    """How a histogram's observations are spread, interval by interval. `expr`: an increase by le."""
    options = {
        "calculate": False,
        "cellGap": 1,
        "color": {"mode": "scheme", "scheme": "Blues", "steps": 64, "exponent": 0.5},
        "yAxis": {"unit": unit, "axisPlacement": "left"},
        "rowsFrame": {"layout": "auto"},
        "legend": {"show": True},
        "tooltip": {"show": True, "yHistogram": True},
        "filterValues": {"le": 1e-9},
    }
    return _panel(
        "heatmap", title, description, [(expr, "{{le}}", {"format": "heatmap", "range": True})], "short", width, height, None, options
    )


def timeline(title, description, expr, legend, mappings, width=12, height=8):
    """A state over time, a line each; `mappings`: value → (word, colour)."""
    custom = {"fillOpacity": 80, "lineWidth": 0}
    limits = {
        "color": {"mode": "thresholds"},
        "mappings": [
            {"type": "value", "options": {str(k): {"text": t, "color": c, "index": i}}} for i, (k, (t, c)) in enumerate(mappings.items())
        ],
    }
    options = {
        "mergeValues": True,
        "showValue": "auto",
        "alignValue": "left",
        "rowHeight": 0.8,
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "single", "sort": "none"},
    }
    return _panel("state-timeline", title, description, [(expr, legend)], "short", width, height, None, options, custom, limits)


def table(title, description, expr, columns, unit="short", width=12, height=8):
    """Series of now, a row each; `columns`: label → heading, in this order. "Value" is the sample itself."""
    options = {"showHeader": True, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}}
    panel = _panel(
        "table",
        title,
        description,
        [(expr, "", {"format": "table", "instant": True, "range": False})],
        unit,
        width,
        height,
        None,
        options,
        {"align": "auto", "cellOptions": {"type": "auto"}, "filterable": False},
        {"noValue": "none"},
    )
    panel["transformations"] = [
        {"id": "filterFieldsByName", "options": {"include": {"names": list(columns)}}},
        {"id": "organize", "options": {"indexByName": {name: i for i, name in enumerate(columns)}, "renameByName": columns}},
    ]
    return panel


def _variable(name, label, query):
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": DATASOURCE,
        "query": {"query": query, "refId": "variable"},
        "definition": query,
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }


POOL = _variable("pool", "Pool", "label_values(dex_queue_oldest_ready_seconds, pool)")
WORKER = _variable("worker", "Worker", "label_values(dex_worker_heartbeat_timestamp_seconds, instance)")


def dashboard(uid, title, description, variables, rows):
    """`rows`: (heading, panels). Ids and places follow from the order."""
    panels, y = [], 0
    for heading, members in rows:
        panels.append(
            {"type": "row", "title": heading, "collapsed": False, "panels": [], "gridPos": {"x": 0, "y": y, "w": COLUMNS, "h": 1}}
        )
        y, x, tallest = y + 1, 0, 0
        for panel in members:
            place = panel["gridPos"]
            if x + place["w"] > COLUMNS:
                x, y, tallest = 0, y + tallest, 0
            panel["gridPos"] = {"x": x, "y": y, "w": place["w"], "h": place["h"]}
            x, tallest = x + place["w"], max(tallest, place["h"])
            panels.append(panel)
        y += tallest
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    source = {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "current": {}}
    alerts = {
        "name": "Alerts",
        "enable": True,
        "iconColor": "red",
        "datasource": DATASOURCE,
        "step": "60s",
        "titleFormat": "{{alertname}}",
        "expr": 'ALERTS{alertname=~"Dex.*",alertstate="firing"}',
        "textFormat": "{{severity}} {{pool}} {{instance}}",
    }
    return {
        "uid": uid,
        "title": title,
        "description": description,
        "tags": ["dex"],
        "schemaVersion": 38,
        "editable": True,
        "version": 1,
        "graphTooltip": 1,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "",
        "links": [{"type": "dashboards", "tags": ["dex"], "title": "DEX", "asDropdown": True, "keepTime": True, "includeVars": False}],
        "annotations": {"list": [alerts]},
        "templating": {"list": [source, *variables]},
        "panels": panels,
    }
