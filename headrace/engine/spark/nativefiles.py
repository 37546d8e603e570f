"""Lets Spark set the permissions of local files by a system call, where Hadoop would start a process for each.

`NativeFiles.java` does it. Spark's own compiler of generated code, Janino, compiles it, so that no JDK is needed.
"""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark import SparkContext

_SOURCE: Final = Path(__file__).with_name("NativeFiles.java")
_CLASS: Final = "headrace.NativeFiles"


def install_native_files(context: SparkContext) -> None:
    """Replaces the local file system of a driver's JVM; files that are open stay as they are."""
    gateway, jvm = context._gateway, context._jvm
    assert gateway is not None and jvm is not None
    compiler: Any = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(_SOURCE.read_text())
    constructor = compiler.getClassLoader().loadClass(_CLASS).getConstructor(gateway.new_array(jvm.Class, 0))
    constructor.newInstance(gateway.new_array(jvm.Object, 0)).install(context._jsc.hadoopConfiguration())


def install_beside(context: SparkContext) -> threading.Thread:
    """Does the same in a thread of its own: half a second in which the session can do other things."""
    thread = threading.Thread(target=_install, args=(context,), name="native-files", daemon=True)
    thread.start()
    return thread


def _install(context: SparkContext) -> None:
    try:
        install_native_files(context)
    except (Py4JError, OSError, AttributeError):
        if context._jsc is not None:  # it was not stopped meanwhile
            raise
