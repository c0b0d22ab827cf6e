"""What runs leave in the place where nobody named theirs: it goes, and nothing that lives does."""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from lilo_sidecar import leftovers
from lilo_sidecar.intake.listening import unix_listener
from lilo_sidecar.leftovers import own_state


def dead() -> int:
    """The process id of nobody."""
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def left(state: Path, *, of_a_run: bool = True) -> Path:
    """A state directory as a sidecar that was killed leaves it."""
    state.mkdir(mode=0o700)
    for name in ("snapshot-1", "journal-1", "lock", *(["of-a-run"] if of_a_run else [])):
        (state / name).touch()
    return state


def mine(place: Path) -> Path:
    return place / f"run-{os.getpid()}.state"


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """As a process of another container has it, whose id is nobody's here."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def test_a_run_begins_with_an_empty_directory_and_removes_it(tmp_path: Path) -> None:
    """Also where one of its process id was killed; what no sidecar puts there stays."""
    left(mine(tmp_path))
    with own_state(mine(tmp_path), shared=False):
        assert [path.name for path in mine(tmp_path).iterdir()] == ["of-a-run"]
        (mine(tmp_path) / "journal-1").touch()
    assert not mine(tmp_path).exists()
    (left(mine(tmp_path)) / "of somebody else").touch()
    with own_state(mine(tmp_path), shared=False):
        pass
    assert [path.name for path in mine(tmp_path).iterdir()] == ["of somebody else"]


@pytest.mark.parametrize("held", [".", "lock"], ids=["by its run", "by its sidecar"])
def test_a_directory_that_is_in_use_stays(tmp_path: Path, held: str) -> None:
    """Whatever its process id says here: of a run in another container it says nothing. Once the
    lock is free, it goes."""
    other = left(tmp_path / f"run-{dead()}.state")
    same = left(mine(tmp_path))
    with (
        locked(other / held),
        locked(same / held),
        own_state(mine(tmp_path), shared=False),
    ):
        pass
    assert {len(list(state.iterdir())) for state in (other, same)} == {4}
    with own_state(mine(tmp_path), shared=False):
        assert not other.exists()


def test_a_run_has_its_directory_while_no_sidecar_has(tmp_path: Path) -> None:
    """Between two sidecars of a run, another run finds it in use."""
    with own_state(mine(tmp_path), shared=False):
        descriptor = os.open(mine(tmp_path), os.O_RDONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(descriptor)


def test_what_is_no_dead_runs_stays(tmp_path: Path) -> None:
    """That of a process that lives, a link to something else, other names, one of such a name that
    somebody gave it, a socket that somebody listens on."""
    named = left(tmp_path / f"run-{dead()}.state", of_a_run=False)  # by somebody, for good
    kept = [left(tmp_path / f"run-{os.getppid()}.state"), left(tmp_path / "timing.state")]
    elsewhere = left(tmp_path / "elsewhere")
    link = tmp_path / f"run-{dead()}.state"
    link.symlink_to(elsewhere)
    listening = tmp_path / f"run-{dead()}.sock"
    with unix_listener(listening):
        url = tmp_path / f"{listening.name}.url"
        url.touch()
        with own_state(mine(tmp_path), shared=False):
            pass
        assert listening.is_socket()
        assert url.exists()
    assert link.is_symlink()
    assert all(len(list(state.iterdir())) == 4 for state in (*kept, elsewhere))
    assert len(list(named.iterdir())) == 3


def test_leftovers_that_a_run_looks_at_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command waits meanwhile. The next run goes on."""
    monkeypatch.setattr(leftovers, "MAX_REMOVED", 2)
    monkeypatch.setattr(leftovers, "_lives", lambda number: False)
    states = [left(tmp_path / f"run-{number}.state") for number in (3, 4, 5)]
    for remaining in (1, 0):
        with own_state(mine(tmp_path), shared=False):
            assert sum(state.exists() for state in states) == remaining


def test_leftovers_that_have_to_stay_are_not_in_the_others_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few are looked at, and whatever their numbers: it is any of them."""
    monkeypatch.setattr(leftovers, "MAX_REMOVED", 1)
    monkeypatch.setattr(leftovers, "_lives", lambda number: False)
    for number in (3, 4):
        (left(tmp_path / f"run-{number}.state") / "of somebody else").touch()
    last = left(tmp_path / "run-5.state")
    for _ in range(1000):  # (2/3)**1000 that it is never this one
        if last.exists():
            with own_state(mine(tmp_path), shared=False):
                pass
    assert not last.exists()


def test_a_directory_that_was_made_anew_meanwhile_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run to which this one's process is dead may remove it before it is locked. What is locked
    then is in no directory, and what is there now is another's."""
    state = mine(tmp_path)
    lock = fcntl.flock

    def lock_once_it_is_another(descriptor: int, operation: int) -> None:
        monkeypatch.setattr(fcntl, "flock", lock)
        state.rename(tmp_path / "removed")
        left(state)
        lock(descriptor, operation)

    with contextlib.ExitStack() as held:
        held.enter_context(own_state(tmp_path / "run-1.state", shared=False))
        monkeypatch.setattr(fcntl, "flock", lock_once_it_is_another)
        with leftovers._claimed(left(state)) as free:
            assert not free
    assert len(list(state.iterdir())) == 4


def test_a_place_that_cannot_be_had_is_no_reason_not_to_run(tmp_path: Path) -> None:
    """A file is in the way, or others may write there."""
    (tmp_path / "file").touch()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    for place in ("file", "shared"):
        with own_state(mine(tmp_path / place), shared=False):
            assert not mine(tmp_path / place).exists()
