"""The directory of a system: the paths of its parts, its configuration, and its process lock."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

import sqlalchemy as sa

from headrace.local.atomicfile import replace_file
from headrace.local.privatefile import read_private
from headrace.local.privatefolder import check_folder
from headrace.local.processlock import LockHolder, ProcessLock, exclusive, lock_holder
from headrace.model.secrets import strip_passwords
from headrace.views.errors import ViewError

_CONFIG: Final = "runs.json"


@dataclass(frozen=True)
class SystemConfig:
    """The configuration of a system: the file of its app, its store and its log. Passwords are left out."""

    app: str
    store: str
    log: str

    @classmethod
    def of(cls, app: str, store: str, log: str) -> Self:
        """Makes a configuration, without the password of the store.

        >>> SystemConfig.of("/apps/app.py", "postgresql://ann:secret@db/views", "/data/log").store
        'postgresql://ann@db/views'
        """
        return cls(app, strip_passwords(sa.make_url(store)), log)


@dataclass(frozen=True)
class Home:
    """The directory of a system.

    >>> import tempfile
    >>> home = Home(Path(tempfile.mkdtemp()))
    >>> home.checkpoint("visitors", "5f2c90ab77e4").relative_to(home.path).as_posix()
    'speed/visitors-5f2c90ab'
    >>> with home.exclusive() as lock:
    ...     lock.publish_url("http://127.0.0.1:8787")
    ...     home.holder().url
    'http://127.0.0.1:8787'
    >>> home.holder() is None
    True
    """

    path: Path

    @property
    def log(self) -> str:
        """The embedded log."""
        return str(self.path / "log")

    @property
    def store(self) -> str:
        """The URL of the default store."""
        return f"sqlite:///{self.path.absolute()}/views.db"

    @property
    def masters(self) -> Path:
        """The directory of master data, which has a directory for each topic."""
        return self.path / "master"

    def checkpoint(self, view: str, identity: str) -> Path:
        """Returns the checkpoint of a view's speed layer, one for each store: a new store must get all events."""
        return self.path / "speed" / f"{view}-{identity[:8]}"

    def has_app(self) -> bool:
        """Tells whether an app in Python was run in the directory."""
        return (self.path / _CONFIG).exists()

    def has_statements(self) -> bool:
        """Tells whether statements of continuous SQL were executed in the directory."""
        return (self.path / "catalog.json").exists()

    def config(self) -> SystemConfig | None:
        """Reads the configuration of the last run; None if there was none."""
        check_folder(self.path)  # the app that it names is run
        try:
            return SystemConfig(**json.loads(read_private(self.path / _CONFIG)))
        except FileNotFoundError:
            return None
        except (ValueError, TypeError) as error:
            raise ViewError(f"{self.path / _CONFIG} is damaged ({error}); `headrace up` writes it again") from None

    def save_config(self, config: SystemConfig) -> None:
        """Writes the configuration."""
        replace_file(self.path / _CONFIG, json.dumps(asdict(config)).encode())

    def holder(self) -> LockHolder | None:
        """Returns the process that holds the directory's lock now; None if none does."""
        return lock_holder(self._lock)

    @contextmanager
    def exclusive(self) -> Iterator[ProcessLock]:
        """Holds the directory's lock until the block or the process ends. Refused while another process holds it."""
        with exclusive(self._lock, self._refusal) as lock:
            yield lock

    def _refusal(self, other: LockHolder) -> ViewError:
        return ViewError(
            f"{self.path} belongs to {other}: two processes at once would count twice; stop that one, or use "
            "another directory"
        )

    @property
    def _lock(self) -> Path:
        return self.path / "up.lock"
