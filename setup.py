"""Builds the compiled twin of the hot functions where a C compiler is at hand.

The extension is optional: without a compiler the install goes on and plain Python serves.
"""

from Cython.Build import cythonize
from setuptools import Extension, setup

compiled = Extension(
    "cometmq.protocol._compiled",
    ["src/cometmq/protocol/_compiled.pyx"],
    extra_compile_args=["-O3"],
)
extensions = cythonize([compiled], build_dir="build/cython")
for extension in extensions:
    # Not an argument above: cythonize makes the extensions anew and forgets it.
    extension.optional = True

setup(ext_modules=extensions)
