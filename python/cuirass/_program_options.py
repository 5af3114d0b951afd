"""NVRTC's spelling of the program options."""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._options import ProgramOptions

# Each field with how its value is written: "flag" alone, and "on" as =on, when true; "bool" as =true or
# =false; "value" as =value; "each" as one =value for every item; "macro" as NAME or NAME=VALUE.
_SPELLINGS = (
    ("arch", "-arch", "value"),
    ("relocatable_device_code", "--relocatable-device-code", "bool"),
    ("extensible_whole_program", "--extensible-whole-program", "flag"),
    ("debug", "--device-debug", "flag"),
    ("lineinfo", "--generate-line-info", "flag"),
    ("device_code_optimize", "--dopt", "on"),
    ("ptxas_options", "--ptxas-options", "each"),
    ("max_register_count", "--maxrregcount", "value"),
    ("ftz", "--ftz", "bool"),
    ("prec_sqrt", "--prec-sqrt", "bool"),
    ("prec_div", "--prec-div", "bool"),
    ("fma", "--fmad", "bool"),
    ("use_fast_math", "--use_fast_math", "flag"),
    ("extra_device_vectorization", "--extra-device-vectorization", "flag"),
    ("link_time_optimization", "--dlink-time-opt", "flag"),
    ("gen_opt_lto", "--gen-opt-lto", "flag"),
    ("define_macro", "--define-macro", "macro"),
    ("undefine_macro", "--undefine-macro", "each"),
    ("include_path", "--include-path", "each"),
    ("use_bundled_headers", "--use-bundled-headers", "flag"),
    ("pre_include", "--pre-include", "each"),
    ("no_source_include", "--no-source-include", "flag"),
    ("std", "--std", "value"),
    ("builtin_move_forward", "--builtin-move-forward", "bool"),
    ("builtin_initializer_list", "--builtin-initializer-list", "bool"),
    ("disable_warnings", "--disable-warnings", "flag"),
    ("restrict", "--restrict", "flag"),
    ("device_as_default_execution_space", "--device-as-default-execution-space", "flag"),
    ("device_int128", "--device-int128", "flag"),
    ("device_float128", "--device-float128", "flag"),
    ("optimization_info", "--optimization-info", "value"),
    ("no_display_error_number", "--no-display-error-number", "flag"),
    ("diag_error", "--diag-error", "each"),
    ("diag_suppress", "--diag-suppress", "each"),
    ("diag_warn", "--diag-warn", "each"),
    ("brief_diagnostics", "--brief-diagnostics", "bool"),
    ("time", "--time", "value"),
    ("split_compile", "--split-compile", "value"),
    ("fdevice_syntax_only", "--fdevice-syntax-only", "flag"),
    ("minimal", "--minimal", "flag"),
    ("no_cache", "--no-cache", "flag"),
    ("fdevice_time_trace", "--fdevice-time-trace", "value"),
    ("frandom_seed", "--frandom-seed", "value"),
    ("ofast_compile", "--Ofast-compile", "value"),
    ("pch", "--pch", "flag"),
    ("create_pch", "--create-pch", "value"),
    ("use_pch", "--use-pch", "value"),
    ("pch_dir", "--pch-dir", "value"),
    ("pch_verbose", "--pch-verbose", "bool"),
    ("pch_messages", "--pch-messages", "bool"),
    ("instantiate_templates_in_pch", "--instantiate-templates-in-pch", "bool"),
    ("numba_debug", "--numba-debug", "flag"),
)

# Of each group at most one may be given.
_EXCLUSIVE = (("pch", "create_pch", "use_pch"),)


def check(options: "ProgramOptions") -> None:
    """Raise ``ValueError`` or ``TypeError`` for options that contradict each other or are of the wrong kind."""
    for group in _EXCLUSIVE:
        given = [name for name in group if getattr(options, name)]
        if len(given) > 1:
            raise ValueError(f"{' and '.join(given)} cannot be given together")
    for name in ("arch", "name"):
        value = getattr(options, name)
        if value is not None and not isinstance(value, str):
            raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    for name in ("max_register_count", "split_compile"):
        value = getattr(options, name)
        if value is not None and not hasattr(value, "__index__"):
            raise TypeError(f"{name} must be an int, not {type(value).__name__}")
    if options.max_register_count is not None and options.max_register_count < 1:
        raise ValueError(f"max_register_count must be positive, it is {options.max_register_count}")
    if options.split_compile is not None and options.split_compile < 0:
        raise ValueError(f"split_compile must not be negative, it is {options.split_compile}")


def _items(value: Any) -> Iterable[Any]:
    return value if isinstance(value, (list, tuple)) else (value,)


def _macros(value: Any) -> Iterator[str]:
    alone = isinstance(value, str) or (
        isinstance(value, tuple) and len(value) == 2 and all(isinstance(part, str) for part in value)
    )
    for macro in (value,) if alone else _items(value):
        if isinstance(macro, str):
            yield macro
        elif isinstance(macro, tuple) and len(macro) == 2 and all(isinstance(part, str) for part in macro):
            yield "=".join(macro)
        else:
            raise TypeError(f"define_macro takes names and pairs of a name and a value, not {macro!r}")


def _spelled(name: str, option: str, kind: str, value: Any) -> Iterator[str]:
    if kind == "flag":
        if value:
            yield option
    elif kind == "on":
        if value:
            yield f"{option}=on"
    elif kind == "bool":
        yield f"{option}={'true' if value else 'false'}"
    elif kind == "value":
        yield f"{option}={value}"
    elif kind == "macro":
        yield from (f"{option}={macro}" for macro in _macros(value))
    else:
        yield from (f"{option}={item}" for item in _items(value))


def nvrtc_texts(options: "ProgramOptions") -> list[str]:
    """Return the options as NVRTC takes them. Raise ``ValueError`` for what it cannot do."""
    check(options)
    for name in ("extra_sources", "use_libdevice"):
        if getattr(options, name):
            raise ValueError(f"{name} is for NVVM: NVRTC cannot do it")
    texts: list[str] = []
    for name, option, kind in _SPELLINGS:
        value = getattr(options, name)
        if value is not None:
            texts.extend(_spelled(name, option, kind, value))
    return texts
