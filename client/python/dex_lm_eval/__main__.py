"""lm_eval's own command line with the model "dex" in it; the harness has no other door for models from outside."""

import sys

from lm_eval.__main__ import cli_evaluate

from . import DexError


def main():
    try:
        cli_evaluate()
    except DexError as error:
        sys.exit(f"dex-lm-eval: error: {error}")


if __name__ == "__main__":
    main()
