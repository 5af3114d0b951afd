"""Where the compiler library is."""

import os
import sys

_NAMES = ("libnvrtc.so.13", "libnvrtc.so.12")
_FOLDERS = (("nvidia", "cu13", "lib"), ("nvidia", "cuda_nvrtc", "lib"))


def find() -> str | None:
    """Return the path of NVRTC; ``None`` leaves the search to the loader's own places.

    ``CUIRASS_NVRTC`` goes first; then a wheel beside this package; then whatever ``cuda-pathfinder`` knows.
    """
    told = os.environ.get("CUIRASS_NVRTC")
    if told:
        return told
    for root in sys.path:
        for folder in _FOLDERS:
            for name in _NAMES:
                path = os.path.join(root, *folder, name)
                if os.path.exists(path):
                    return path
    return _from_pathfinder()


def _from_pathfinder() -> str | None:
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except ImportError:
        return None
    try:
        path = load_nvidia_dynamic_lib("nvrtc").abs_path
    except Exception:  # whatever it is, the loader's own places are still to be tried, and their failure is raised
        return None
    return None if path is None else str(path)
