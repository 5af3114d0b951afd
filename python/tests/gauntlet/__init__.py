"""The gauntlet: every public operation of the package, with each call that it makes failing in turn.

The engine is that of the Rust gauntlet (``crates/cuirass-testkit``), which the package has when it is built with the
feature ``gauntlet``, as ``make build`` does. What is here is the registry: one file a family, in ``families/``. A new
public operation is registered in the file of its family, or a test fails.

::

    python python/tests/gauntlet                               a part of it, in seconds
    CUIRASS_GAUNTLET=slice:7 python python/tests/gauntlet      another part; slice:7/20 is one run in twenty
    CUIRASS_GAUNTLET=full python python/tests/gauntlet         all of it (make gauntlet)
    … --family stream                                          one family, in this process
    … --operation Stream.close                                 one operation, whole, in this process
    … --faulted Stream.close                                   one operation, in a context that is lost
    CUIRASS_DRIVER=gpu …                                       over the system's driver
"""
