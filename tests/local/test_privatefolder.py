"""Directories that others own or may write to are refused: by modes, by owners, and by what others can really do."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from headrace.local import privatefolder
from headrace.local.privatefile import private_opener, read_private
from headrace.local.privatefolder import UntrustedPath, check_folder, check_tree, make_folder
from headrace.model.errors import HeadraceError
from tests.local.attacker import NOBODY, as_nobody, needs_root, reachable_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with reachable_folder() as made:
        yield made


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o750, 0o711, 0o555])
def test_directories_that_others_may_only_read_are_as_good_as_before(folder: Path, mode: int) -> None:
    (folder / "data").mkdir()
    (folder / "data").chmod(mode)
    check_folder(folder / "data")
    make_folder(folder / "data")
    check_tree(folder / "data")
    assert (folder / "data").stat().st_mode & 0o777 == mode


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o702, 0o1777, 0o722])
def test_directories_that_others_may_write_are_refused_with_the_remedy(folder: Path, mode: int) -> None:
    (folder / "data").mkdir()
    (folder / "data").chmod(mode)
    for refuse in (check_folder, make_folder, check_tree):
        with pytest.raises(UntrustedPath) as refused:
            refuse(folder / "data")
        assert f"{folder / 'data'} has mode {mode:04o} and belongs to" in str(refused.value)
        assert isinstance(refused.value, HeadraceError)
        if mode != 0o1777:
            assert f"`chmod -R go-w {folder / 'data'}`" in str(refused.value)
            (folder / "data" / "log").mkdir(exist_ok=True)
            with pytest.raises(UntrustedPath, match=f"{folder / 'data'} has mode"):
                refuse(folder / "data" / "log")
    (folder / "data").chmod(mode & ~0o1022)
    check_folder(folder / "data")


def test_what_is_missing_is_made_for_this_user_only_whatever_the_umask(folder: Path) -> None:
    before = os.umask(0)
    try:
        make_folder(folder / "a" / "b" / "c")
        with open(folder / "a" / "note", "xb", opener=private_opener):
            pass
    finally:
        os.umask(before)
    for made in ("a", "a/b", "a/b/c"):
        assert (folder / made).stat().st_mode & 0o777 == 0o700
    assert (folder / "a" / "note").stat().st_mode & 0o777 == 0o600
    with pytest.raises(FileExistsError):
        make_folder(folder / "a", exist_ok=False)
    with pytest.raises(FileExistsError):
        make_folder(folder / "a" / "note")


def test_a_directory_in_a_refused_place_is_not_even_made(folder: Path) -> None:
    folder.chmod(0o777)
    with pytest.raises(UntrustedPath):
        make_folder(folder / "a" / "b")
    assert list(folder.iterdir()) == []


def test_a_sticky_directory_will_do_on_the_way_but_not_in_the_end(folder: Path) -> None:
    folder.chmod(0o1777)
    make_folder(folder / "mine")
    check_folder(folder / "mine")
    with pytest.raises(UntrustedPath, match=r"mode 1777 .* choose a directory that only you"):
        check_folder(folder)


def test_links_are_followed_as_the_system_follows_them(folder: Path) -> None:
    make_folder(folder / "real" / "data")
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    (folder / "open" / "link").symlink_to(folder / "real")
    (folder / "near").symlink_to("real/../real")
    check_folder(folder / "near" / "data")
    check_folder(folder / "near" / "data" / ".." / "data")
    for path in ("open/link", "open/link/data", "open/../open/link/data"):
        with pytest.raises(UntrustedPath, match=f"{folder / 'open'} has mode 0777"):
            check_folder(folder / path)
    (folder / "circle").symlink_to("circle")
    with pytest.raises(OSError, match="circle"):
        check_folder(folder / "circle" / "data")
    (folder / "nowhere").symlink_to("missing")
    check_folder(folder / "nowhere")
    with pytest.raises(FileExistsError):
        make_folder(folder / "nowhere")


def test_relative_paths(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    make_folder(Path("data/log"))
    assert (folder / "data" / "log").is_dir()
    folder.chmod(0o777)
    with pytest.raises(UntrustedPath):
        check_folder(Path("data"))


def test_files_are_refused_if_they_are_links_or_open_to_others(folder: Path) -> None:
    victim = folder / "victim"
    victim.write_bytes(b"precious")
    (folder / "link").symlink_to(victim)
    for mode in ("rb", "wb", "ab", "r+b"):
        with pytest.raises(UntrustedPath, match="link is a link"):
            open(folder / "link", mode, opener=private_opener).close()
    with pytest.raises(FileExistsError):
        open(folder / "link", "xb", opener=private_opener).close()
    assert victim.read_bytes() == b"precious"
    assert read_private(victim) == b"precious"
    victim.chmod(0o666)
    with pytest.raises(UntrustedPath, match="`chmod go-w"):
        read_private(victim)
    os.mkfifo(folder / "pipe", 0o600)
    for mode in ("rb", "r+b"):  # the first would wait for whoever writes
        with pytest.raises(UntrustedPath, match="is no file"):
            open(folder / "pipe", mode, opener=private_opener).close()


def test_a_group_is_trusted_only_if_it_has_nobody_else(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    me = privatefolder.pwd.getpwuid(os.geteuid())
    gid = folder.stat().st_gid
    folder.chmod(0o775)

    def database(name: str | None, *members: str, primary: tuple[str, ...] = (), listed: bool = True) -> None:
        def group_of(number: int) -> object:
            if name is None:
                raise KeyError(number)
            return privatefolder.grp.struct_group((name, "x", gid, list(members)))

        others = [privatefolder.pwd.struct_passwd((each, "x", 4711, gid, "", "/", "/bin/sh")) for each in primary]
        monkeypatch.setattr(privatefolder.grp, "getgrgid", group_of)
        monkeypatch.setattr(privatefolder.pwd, "getpwall", lambda: [*([me] if listed else []), *others])

    trusted = [(me.pw_name,), (me.pw_name, me.pw_name), ("users",), ("users", me.pw_name, "root"), (None,)]
    for group in trusted:
        database(*group)
        check_folder(folder)
        for more in ({"primary": ("eve",)}, {"primary": ("eve",), "listed": False}):
            database(*group, **more)
            with pytest.raises(UntrustedPath, match="mode 0775"):
                check_folder(folder)
        if group[0] is not None:
            database(*group, "eve")
            with pytest.raises(UntrustedPath, match="mode 0775"):
                check_folder(folder)
    # Accounts of a directory service are known one by one, but not listed.
    database(me.pw_name, listed=False)
    check_folder(folder)
    database("users", listed=False)
    with pytest.raises(UntrustedPath, match="mode 0775"):
        check_folder(folder)
    # A list of users looks like the rights of the group.
    database(me.pw_name)
    monkeypatch.setattr(privatefolder.os, "getxattr", lambda *_, **__: b"user:eve:rwx", raising=False)
    with pytest.raises(UntrustedPath, match="mode 0775"):
        check_folder(folder)


MODES = (0o700, 0o755, 0o711, 0o777, 0o773, 0o702, 0o1777)


@needs_root
def test_whatever_another_user_can_change_is_refused(folder: Path) -> None:
    """Every mode and owner of a directory and its parent: he tries to put something there, or to take their place."""
    owners = (0, NOBODY)
    cases = list(enumerate(itertools.product(owners, MODES, owners, MODES)))
    for number, (parent_owner, parent_mode, owner, mode) in cases:
        data = folder / str(number) / "data"
        data.mkdir(parents=True)
        data.chmod(mode)
        data.parent.chmod(parent_mode)
        os.chown(data, owner, owner)
        os.chown(data.parent, parent_owner, parent_owner)

    def refused(number: int) -> bool:
        try:
            check_folder(folder / str(number) / "data")
        except UntrustedPath:
            return True
        return False

    before = {number: refused(number) for number, _ in cases}

    def attack() -> set[int]:
        changed = set()
        for number, (parent_owner, _, owner, _) in cases:
            data = folder / str(number) / "data"
            if parent_owner == NOBODY:
                data.parent.chmod(0o777)
            if owner == NOBODY:
                with suppress(OSError):
                    data.chmod(0o777)
            for attempt in (lambda at=data: (at / "requests").mkdir(), lambda at=data: at.rename(at.with_name("old"))):
                try:
                    attempt()
                    changed.add(number)
                except OSError:
                    continue
        return changed

    changed = as_nobody(attack)
    assert changed  # or nothing was tried
    assert [case for number, case in cases if number in changed and not before[number]] == []
    # Nothing is refused without need, but what he owns, or might write, behind a door that is closed to him now.
    idle = [case for number, case in cases if before[number] and number not in changed]
    assert all(owner == NOBODY or (parent_mode | mode) & 0o022 for _, parent_mode, owner, mode in idle)


@needs_root
def test_what_another_user_has_left_in_a_directory_is_found(folder: Path) -> None:
    make_folder(folder / "state" / "0")
    (folder / "state" / "0" / "1.delta").write_bytes(b"mine")
    check_tree(folder / "state")
    os.chown(folder / "state" / "0" / "1.delta", NOBODY, NOBODY)
    with pytest.raises(UntrustedPath, match=r"1.delta .* belongs to nobody"):
        check_tree(folder / "state")
    with pytest.raises(UntrustedPath, match="another user, who decides"):
        read_private(folder / "state" / "0" / "1.delta")
    (folder / "state" / "0" / "1.delta").unlink()
    (folder / "state" / "link").symlink_to("/etc")
    os.chown(folder / "state" / "link", NOBODY, NOBODY, follow_symlinks=False)
    for check in (check_tree, lambda path: check_folder(path / "link")):
        with pytest.raises(UntrustedPath, match=r"link .* belongs to nobody"):
            check(folder / "state")


def test_modes_inside_a_closed_directory_do_not_matter(folder: Path) -> None:
    """Spark's JVM makes files by its umask, which may be anything."""
    make_folder(folder / "checkpoint")
    (folder / "checkpoint" / "offsets").mkdir()
    (folder / "checkpoint" / "offsets").chmod(0o777)
    check_tree(folder / "checkpoint")
    (folder / "checkpoint").chmod(0o755)
    with pytest.raises(UntrustedPath, match="offsets has mode 0777"):
        check_tree(folder / "checkpoint")
