"""Object code."""

import pickle

from cuirass import ObjectCode

from ..objects import code, loaded_code, ptx
from ..registry import ALL, NEEDS_CURRENT, dropped, getters, operation, pure

LOADED = "the code is loaded once and for all, whatever becomes of what it was loaded for"
KINDS = ["from_cubin", "from_ptx", "from_ltoir", "from_fatbin", "from_object", "from_library"]

OPERATIONS = [
    *[pure(f"ObjectCode.{name}", lambda text, _name=name: getattr(ObjectCode, _name)(text), text=ptx)
      for name in KINDS],
    operation("ObjectCode.get_kernel", lambda code: code.get_kernel("add"), callers=ALL, code=loaded_code),
    operation("ObjectCode.get_kernel", lambda code: code.get_kernel("add"), case="the first", code=code)
    .allow("stays", "library", reason=LOADED),
    operation("ObjectCode.handle", lambda code: code.handle, callers=ALL, code=code)
    .allow("stays", "library", reason=LOADED),
    pure("ObjectCode.handle", lambda code: code.handle, case="of loaded code", code=loaded_code),
    operation("ObjectCode.get_module", lambda code: code.get_module(), callers=NEEDS_CURRENT, code=loaded_code),
    *getters("ObjectCode", ["code", "name", "code_type", "symbol_mapping"], calls=False, code=loaded_code),
    dropped("ObjectCode", code=loaded_code),
    pure("ObjectCode.__reduce__", lambda code: pickle.loads(pickle.dumps(code)), code=code),
    pure("ObjectCode.__eq__", lambda code: code == code, code=loaded_code),
    pure("ObjectCode.__hash__", hash, code=loaded_code),
    pure("ObjectCode.__repr__", repr, code=loaded_code),
]  # fmt: skip
