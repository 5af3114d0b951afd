"""Private names of ``cuda.core`` that programs import."""
