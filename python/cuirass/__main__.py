"""``python -m cuirass``: ``doctor``, ``demo`` and ``sim``."""

import argparse
import os
import subprocess
import sys
import tempfile


def _sim(command: list[str]) -> int:
    """Run a command for which the simulator is the CUDA driver."""
    import cuirass

    library = os.environ.get("CUIRASS_SIM_LIBRARY") or cuirass.sim.library()
    if library is None:
        print("this package was built without the simulator; set CUIRASS_SIM_LIBRARY to its path", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory(prefix="cuirass-sim-") as folder:
        for name in ("libcuda.so.1", "libcuda.so"):
            os.symlink(os.path.abspath(library), os.path.join(folder, name))
        path = os.pathsep.join(part for part in (folder, os.environ.get("LD_LIBRARY_PATH", "")) if part)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": path,
            "CUIRASS_DRIVER": "sim",
            "CUIRASS_SIM_LIBRARY": os.path.abspath(library),
        }
        try:
            code = subprocess.run(command, env=environment, check=False).returncode
        except OSError as error:
            print(f"{command[0]} cannot be run: {error.strerror}", file=sys.stderr)
            return 127
        except KeyboardInterrupt:
            return 130
    return code if code >= 0 else 128 - code


def main(arguments: list[str] | None = None) -> int:
    """Run a command of this package and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m cuirass", description="The host side of CUDA.")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    commands.add_parser("doctor", help="what is installed, found and missing, and how to mend it")
    demo = commands.add_parser("demo", help="kernels on two streams, checked, and what failures look like")
    demo.add_argument("--driver", choices=("gpu", "sim"), help="the GPU, or the simulated device")
    demo.add_argument("--fault", action="store_true", help=argparse.SUPPRESS)
    sim = commands.add_parser("sim", help="run any program with the simulated driver: sim -- COMMAND ...")
    sim.add_argument("program", nargs=argparse.REMAINDER, metavar="COMMAND", help="the program and its arguments")
    chosen = parser.parse_args(arguments)
    if chosen.command == "doctor":
        from . import _doctor

        return _doctor.run()
    if chosen.command == "demo":
        if chosen.driver is not None:
            os.environ["CUIRASS_DRIVER"] = chosen.driver
        from . import _demo

        return _demo.fault() if chosen.fault else _demo.run(chosen.driver)
    program = chosen.program[1:] if chosen.program[:1] == ["--"] else chosen.program
    if not program:
        sim.error("a program is wanted: python -m cuirass sim -- python script.py")
    return _sim(program)


def _run() -> int:
    """Run the command, and tell in a line that its output cannot be written; a reader that has enough is no failure."""
    try:
        try:
            return main()
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # What else fails names its file.
        if error.filename is not None:
            raise
        # What is left in the buffer would be written, and fail, once more at the end.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
        if not isinstance(error, BrokenPipeError):
            print(f"the output cannot be written: {error.strerror}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(_run())
