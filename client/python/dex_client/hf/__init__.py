"""Adapters of the platform in a transformers model of one's own (extra: pip install 'client/python[hf]').

    model = AutoModelForCausalLM.from_pretrained(folder)
    handle = attach(model, "my-adapter")      # what client.adapters.download() wrote
    handle.scale = 0.5                        # half of every λ
    verify(model, client)                     # the log-probabilities that the platform serves
    fold(model)                               # into the weights, or handle.detach()
"""

from ._artefact import Artefact, read
from ._attach import Handle, attach
from ._branch import Branch
from ._fold import fold
from ._verify import Verification, verify

__all__ = ["Artefact", "Branch", "Handle", "Verification", "attach", "fold", "read", "verify"]
