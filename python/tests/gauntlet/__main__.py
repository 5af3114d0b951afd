"""The gauntlet's command line: see the package."""

import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)

from gauntlet.runner import main  # noqa: E402

sys.exit(main(sys.argv[1:]))
