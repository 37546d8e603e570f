"""Java that this package brings as source. Spark's own compiler of generated code, Janino, compiles it: no JDK needed.

- `NativeFiles.java` sets the permissions of local files by a system call, where Hadoop would start a process for each.
- `StateSettings.java` lets Spark interpret encoders of state, where it would generate code for them in every task.
- `MappedRecords.java` reads files of Arrow batches by the column: see `mappedrecords.py`.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkContext


def install_native_files(context: SparkContext) -> None:
    """Replaces the local file system of a driver's JVM; files that are open stay as they are."""
    _made(context, "NativeFiles").install(context._jsc.hadoopConfiguration())


def install_state_settings(context: SparkContext) -> None:
    """Sets what threads of a driver's JVM that serve state have as settings; those of other threads stay."""
    _made(context, "StateSettings").install()


def install_beside(context: SparkContext) -> threading.Thread:
    """Does all of it in a thread of its own: half a second in which the session can do other things."""
    thread = threading.Thread(target=_install, args=(context,), name="java-sources", daemon=True)
    thread.start()
    return thread


def _install(context: SparkContext) -> None:
    try:
        install_native_files(context)
        install_state_settings(context)
    except (Py4JError, OSError, AttributeError):
        if context._jsc is not None:  # it was not stopped meanwhile
            raise


def compiled(context: SparkContext, name: str) -> Any:
    """Compiles a class of this folder; returns the compiler, which has its classes and their bytes."""
    jvm: Any = context._jvm
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(Path(__file__).with_name(f"{name}.java").read_text())
    return compiler


def constructor(compiler: Any, name: str) -> Any:
    """Returns the constructor of a compiled class, which has one."""
    (found,) = compiler.getClassLoader().loadClass(f"headrace.{name}").getConstructors()
    return found


def _made(context: SparkContext, name: str) -> Any:
    """Makes an object of a class of this folder."""
    gateway = context._gateway
    assert gateway is not None and context._jvm is not None
    return constructor(compiled(context, name), name).newInstance(gateway.new_array(context._jvm.Object, 0))
