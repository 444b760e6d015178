"""What the sides compute: token ids, and the multiplications of a training step (performance.md §2)."""

import array
import sys
import zlib

HEAD_ROWS = 171  # rows of logits that the trainer computes at a time (performance.md §5)


def token_rows(rows, length, vocabulary):
    """The peers' formula."""
    return [[(7919 * (row * length + i) + 17) % vocabulary for i in range(length)] for row in range(rows)]


def checksum(rows):
    """CRC-32 of the ids as little-endian int32, row after row, as the peers print it."""
    ids = array.array("i", [id for row in rows for id in row])
    if sys.byteorder == "big":
        ids.byteswap()
    return f"{zlib.crc32(ids.tobytes()):08x}"


def sizes(config):
    """(d, width of the query heads, width of the key heads, f, layers, vocabulary)"""
    d, heads = config["hidden_size"], config["num_attention_heads"]
    width = config.get("head_dim") or d // heads
    return (d, heads * width, config["num_key_value_heads"] * width, config["intermediate_size"], config["num_hidden_layers"],
            config["vocab_size"])


def linears(config):
    """(inputs, outputs) of a layer's matrices: q, k, v, o, gate, up, down."""
    d, q, kv, f, _, _ = sizes(config)
    return [(d, q), (d, kv), (d, kv), (q, d), (d, f), (d, f), (f, d)]


def flop_per_token(config, length, method, rank=8):
    """Of one token of a training step on rows of `length`, every position supervised and every layer adapted. A frozen matrix takes
    two products (forward, gradient of its input), a trained one three; causal attention's backward is 2.5 times its forward. The
    branch (1 %) and all that is no matrix product are left out, so a limit that is made of this is a little too high."""
    d, q, kv, _, layers, vocabulary = sizes(config)
    layer = 4 * sum(inputs * outputs for inputs, outputs in linears(config))
    if method == "dex":
        layer += 2 * (2 * d * kv + q * d)
    else:
        layer += 6 * rank * (2 * (d + q) + 2 * (d + kv))
    attention = 3.5 * 4 * (length / 2) * q
    return layers * (layer + attention) + 4 * vocabulary * d


def gemm_shapes(config, rows, method):
    """[(kind, m, n, k, how often a step of `rows` tokens has it)], C [m, n] of k products each. Kinds: forward x·Wᵀ, input dY·W,
    weight dYᵀ·X. LoRA's own products are left out: they are 1 % of it."""
    d, _, _, _, layers, vocabulary = sizes(config)
    shapes = []
    for place, (inputs, outputs) in enumerate(linears(config)):
        shapes += [("forward", rows, outputs, inputs, layers), ("input", rows, inputs, outputs, layers)]
        if method == "dex" and place in (1, 2, 3):
            shapes.append(("weight", outputs, inputs, rows, layers))
    chunks = rows / HEAD_ROWS
    return shapes + [("forward", HEAD_ROWS, vocabulary, d, chunks), ("input", HEAD_ROWS, d, vocabulary, chunks)]
