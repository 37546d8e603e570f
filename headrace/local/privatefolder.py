"""Private directories: makes them, and refuses those that another user may write to.

Whoever may write to a directory, or replace one on the way to it, decides what is in it: requests that a cluster
executes, state that a stream unpickles. So each directory on the way, and each link, must belong to this user or to
root, and nobody else may write to it. On the way a sticky directory such as /tmp will do: only the owner of an entry
can replace it there.
"""

from __future__ import annotations

import errno
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headrace.model.errors import HeadraceError

_MAX_LINKS: Final = 40  # as many as Linux follows
_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class UntrustedPath(HeadraceError, PermissionError):
    """A file or directory that another user owns or may write to; the message says how to change that."""


def make_folder(path: Path, *, exist_ok: bool = True) -> None:
    """Makes a directory that only this user can reach, and its missing parents. Refuses a place that others may change.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp(), "data", "log")
    >>> make_folder(path)
    >>> f"{path.stat().st_mode:o}", f"{path.parent.stat().st_mode:o}"
    ('40700', '40700')
    """
    check_folder(path)
    missing = [path, *path.parents]
    while len(missing) > 1 and missing[-1].is_dir():
        missing.pop()
    for folder in reversed(missing):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:  # it was there, or another process has just made it
            if not folder.is_dir() or (folder == path and not exist_ok):
                raise
    check_folder(path)


def check_folder(path: Path) -> None:
    """Refuses a directory that another user owns or may write to, itself or by way of its parents.

    One that does not exist is as good as its parents.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp())
    >>> check_folder(path)
    >>> path.chmod(0o777)
    >>> check_folder(path)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    headrace.local.privatefolder.UntrustedPath: ... has mode 0777 and belongs to ..., so that other users may write \
to it, and decide what is run from there; `chmod -R go-w ...`, or choose a directory that only you may write to
    """
    for step, is_last in _steps(path):
        try:
            status = step.lstat()
        except (FileNotFoundError, NotADirectoryError):
            return
        except PermissionError:
            raise UntrustedPath(f"{path} cannot be reached: {step} is closed to this user; choose another") from None
        shared_on_the_way = not is_last and status.st_mode & stat.S_ISVTX
        check_status(step, status, may_share=bool(shared_on_the_way) or stat.S_ISLNK(status.st_mode))


def check_tree(path: Path) -> None:
    """Refuses a directory as `check_folder` does, or for anything that is in it."""
    check_folder(path)
    closed = path.is_dir() and not path.stat().st_mode & _OTHERS  # then the modes inside do not matter
    for folder, folders, files in os.walk(path):
        for name in (*folders, *files):
            inside = Path(folder, name)
            try:
                check_status(inside, inside.lstat(), may_share=closed or inside.is_symlink())
            except FileNotFoundError:
                continue  # whoever owns the directory has just removed it


def check_status(path: Path, status: os.stat_result, *, may_share: bool = False) -> None:
    """Refuses a file or directory by its status; with `may_share`, others may write to it, but not own it."""
    mode, uid = stat.S_IMODE(status.st_mode), status.st_uid
    if uid not in (os.geteuid(), 0):
        raise UntrustedPath(
            f"{path} has mode {mode:04o} and belongs to {_user_name(uid)}, another user, who decides what is run from "
            "there; choose a path of your own, or run as that user"
        )
    if not may_share and (mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not _is_private_group(path, status))):
        recursive = "-R " if stat.S_ISDIR(status.st_mode) else ""
        remedy = f"`chmod {recursive}go-w {path}`, or choose" if not mode & stat.S_ISVTX else "choose"
        raise UntrustedPath(
            f"{path} has mode {mode:04o} and belongs to {_user_name(uid)}, so that other users may write to it, and "
            f"decide what is run from there; {remedy} a directory that only you may write to"
        )


def _steps(path: Path) -> Iterator[tuple[Path, bool]]:
    """Yields directories and links in the order in which the system looks them up, and whether each is the last."""
    here, names, links = Path("/"), list(reversed(path.absolute().parts[1:])), 0
    yield here, not names
    while names:
        name = names.pop()
        if name == "..":
            here = here.parent
            continue
        step = here / name
        yield step, not names
        if not step.is_symlink():
            here = step
            continue
        links += 1
        if links > _MAX_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
        target = step.readlink()
        here = Path("/") if target.is_absolute() else here
        names += [part for part in reversed(target.parts) if part != "/"]


def _is_private_group(path: Path, status: os.stat_result) -> bool:
    """Returns whether nobody but root and its owner is in a file's group: with umask 002, such groups are common.

    Accounts of a directory service are not listed, so there only a group with the name of its owner will do.
    """
    accounts = pwd.getpwall()
    try:
        group = grp.getgrgid(status.st_gid)
        name, members = group.gr_name, set(group.gr_mem)
    except KeyError:  # as of a volume of a container
        name, members = None, set[str]()
    try:
        owner = pwd.getpwuid(status.st_uid).pw_name
    except KeyError:
        owner = None
    members |= {account.pw_name for account in accounts if account.pw_gid == status.st_gid}
    listed = owner is None or any(account.pw_name == owner for account in accounts)
    return members <= {owner, "root"} and (listed or name == owner) and not _has_access_list(path)


def _has_access_list(path: Path) -> bool:
    """Returns whether a file has a list of users and groups, whose rights look like those of its group."""
    try:
        return bool(os.getxattr(path, "system.posix_acl_access", follow_symlinks=False))
    except (OSError, AttributeError):  # there is none; other systems do not have the function
        return False


def _user_name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (uid {uid})"
    except KeyError:
        return f"uid {uid}"
