"""What tests/perf/compare can compare, by name."""

from comparisons import accuracy, adapters, doors, serving, start, training, whole

# Bars whose part of the product, or whose way of measuring it, is not there: named, so that nobody takes them for met.
NOT_YET = {
    "adapters-pool": "the engine refuses an adapter that has no room, and puts none out",
}


def comparisons(context):
    """{name: what has `text` and `lines(name, runner)`}, in the order they are run in."""
    found = {}
    for module in (training, serving, adapters, start, whole, doors, accuracy):
        found |= module.comparisons(context)
    return found


def chosen(asked, known):
    """The names that `asked` means: each a name, or what several begin with (accuracy: accuracy-bf16, accuracy-int8 …); all of them
    without any. ValueError says what is wrong."""
    names = []
    for name in asked or known:
        group = [other for other in known if other.startswith(name + "-")]
        if name in NOT_YET:
            raise ValueError(f'"{name}" is not measured yet: {NOT_YET[name]}')
        if name not in known and not group:
            raise ValueError(f'there is no "{name}"; there are {", ".join(known)}')
        names += [other for other in ([name] if name in known else group) if other not in names]
    return names
