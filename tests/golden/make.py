"""Makes the golden state: what the version at hand leaves on disk half-way, and what it answers when it has gone on.

    python tests/golden/make.py

writes `state.tar.xz` and `answers.json` beside this file. Run it with the version whose state later ones are to read.
In the archive, `/golden-root` stands for the directory in which the state was made.
"""

from __future__ import annotations

import io
import json
import os
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Final

HERE: Final = Path(__file__).parent
ARCHIVE: Final = HERE / "state.tar.xz"
ANSWERS: Final = HERE / "answers.json"
_ROOT: Final = b"/golden-root"


def pack(root: Path, archive: Path) -> None:
    """Archives a directory such that it can be unpacked elsewhere, without Hadoop's checksums, since paths change."""
    with tarfile.open(archive, "w:xz", preset=9) as tar:
        for path in sorted(root.rglob("*")):
            if path.suffix == ".crc":
                continue
            info = tar.gettarinfo(path, str(path.relative_to(root)))
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if not info.isreg():
                tar.addfile(info)
                continue
            data = path.read_bytes()
            if os.fsencode(root) in data:
                data.decode()  # a path in a binary file could not be replaced
                data = data.replace(os.fsencode(root), _ROOT)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def unpack(name: str, root: Path, archive: Path = ARCHIVE) -> Path:
    """Unpacks one program's state below `root`; returns its directory. Files keep their times, which Spark goes by."""
    with tarfile.open(archive) as tar:
        members = [member for member in tar if member.name.split("/")[0] == name]
        tar.extractall(root, members, filter="data")
        for member in members:
            path = root / member.name
            if member.isreg() and _ROOT in (data := path.read_bytes()):
                path.write_bytes(data.replace(_ROOT, os.fsencode(root)))
                os.utime(path, (member.mtime, member.mtime))
    return root / name


def main() -> None:
    """Makes the archive, and then the answers by going on from it."""
    from headrace.engine.spark.session import spark_session
    from tests.golden.states import STATES

    settings = {"spark.log.level": "ERROR", "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    spark = spark_session("local[2]", settings)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        root = Path(folder, "made")
        for name, state in STATES.items():
            (root / name).mkdir(parents=True)
            state.first(root / name, spark)
            print(f"made {name}", flush=True)
        pack(root, ARCHIVE)
        answers = {name: state.second(unpack(name, Path(folder, "unpacked")), spark) for name, state in STATES.items()}
    ANSWERS.write_text(json.dumps(answers, indent=1) + "\n")
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size:,} bytes")


if __name__ == "__main__":
    # The classes of `states` are in the state by the name of their module, which must not be __main__.
    os.chdir(HERE.parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE.parents[1]), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(HERE.parents[1]))
    main()
