"""What `kustomize build` makes of deploy/k8s, for tests on machines without it.

Only what those overlays use is understood: resources, namespace, and JSON patches of one target each. Anything else is an error, not a
guess; lint_k8s compares with the real program where there is one.
"""

from pathlib import Path

import jsonpatch
import yaml

UNDERSTOOD = {"apiVersion", "kind", "namespace", "resources", "patches"}
CLUSTER_WIDE = {"Namespace"}


def build(folder):
    """The objects of a kustomization, in the order of its files."""
    folder = Path(folder)
    plan = yaml.safe_load((folder / "kustomization.yaml").read_text(encoding="utf-8"))
    if strange := set(plan) - UNDERSTOOD:
        raise ValueError(f"{folder}: {sorted(strange)} are not understood here")
    objects = []
    for name in plan["resources"]:
        path = folder / name
        objects += build(path) if path.is_dir() else [o for o in yaml.safe_load_all(path.read_text(encoding="utf-8")) if o]
    for item in objects:
        if "namespace" in plan and item["kind"] not in CLUSTER_WIDE:
            item["metadata"]["namespace"] = plan["namespace"]
    for patch in plan.get("patches", []):
        target = patch["target"]
        found = [o for o in objects if o["kind"] == target["kind"] and o["metadata"]["name"] == target["name"]]
        if len(found) != 1 or set(target) != {"kind", "name"}:
            raise ValueError(f"{folder}: the patch of {target} finds {len(found)} objects")
        objects[objects.index(found[0])] = jsonpatch.apply_patch(found[0], yaml.safe_load(patch["patch"]))
    return objects
