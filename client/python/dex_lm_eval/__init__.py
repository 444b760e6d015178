"""lm-evaluation-harness on models that the DEX platform serves. Importing this registers the model "dex"."""

from .connection import DexError, Platform
from .model import DexLM

__all__ = ["DexError", "DexLM", "Platform"]
