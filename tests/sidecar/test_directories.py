"""The directories that lead to the daemon's socket: nobody else may be able to exchange them."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from lilo_sidecar.errors import StartError
from lilo_sidecar.intake import listening
from lilo_sidecar.intake.listening import unix_listener

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def test_every_directory_that_is_made_is_private(tmp_path: Path) -> None:
    """The parents, too, whatever the umask: whoever can write to one of them could put another
    directory in the place of this one."""
    made = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    before = os.umask(0)
    try:
        with unix_listener(made[-1] / "timing.sock"):
            assert [stat.S_IMODE(each.stat().st_mode) for each in made] == [0o700] * 3
    finally:
        os.umask(before)


def test_directory_that_others_cannot_enter_is_pointed_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is left as it is; the log says why the users that are allowed do not come."""
    tmp_path.chmod(0o700)
    with unix_listener(tmp_path / "timing.sock", frozenset({1})):
        assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700
    (message,) = caplog.messages
    assert f"{tmp_path} has mode 0700, so the users of --allow-uid cannot reach" in message


@pytest.mark.parametrize(
    ("mode", "advice"),
    [
        (0o720, "chmod go-w"),
        (0o702, "chmod go-w"),
        (0o777, "chmod go-w"),
        (0o1777, "a directory of your own, which is made if it is missing, such as {}/timing"),
    ],
)
def test_directory_that_others_can_write_to_is_refused(
    tmp_path: Path, mode: int, advice: str
) -> None:
    """They could put a socket of their own there, and be told what the trainer reports. The error
    says what is wrong and what to do; nothing is made there, sticky or not."""
    place = tmp_path / "place"
    place.mkdir()
    place.chmod(mode)
    for allowed in (frozenset[int](), frozenset({1})):
        with (
            pytest.raises(StartError, match=f"other users may write to the directory {place}") as e,
            unix_listener(place / "timing.sock", allowed),
        ):
            pass
        assert f"mode {mode:04o}" in str(e.value)
        assert advice.format(place) in str(e.value)
        assert ("chmod" in str(e.value)) == (mode != 0o1777)
    assert list(place.iterdir()) == []
    with unix_listener(place / "timing" / "timing.sock"):  # as the error advises
        pass


@needs_root
@pytest.mark.parametrize("kind", ["directory", "link to a directory"])
def test_directory_of_another_user_is_refused(tmp_path: Path, kind: str) -> None:
    """Also behind a link: what counts is the directory that the socket would be in."""
    place = given = tmp_path / "place"
    place.mkdir(0o700)
    os.chown(place, 4242, -1)
    if kind != "directory":
        given = tmp_path / "link"
        given.symlink_to(place)
    with (
        pytest.raises(StartError, match=r"uid 4242.*choose a --socket.* or run the sidecar as"),
        unix_listener(given / "timing.sock"),
    ):
        pass
    assert list(place.iterdir()) == []


@needs_root
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("where", ["the last", "before", "in a target", "relative"])
def test_link_of_another_user_is_not_followed(tmp_path: Path, where: str, missing: bool) -> None:
    """Though it leads to a directory of one's own: its owner could let it lead elsewhere the next
    moment. That is how a place in a directory for everybody is taken before it is one's own.
    Nothing is made behind it."""
    everybodys = tmp_path / "everybodys"
    everybodys.mkdir()
    everybodys.chmod(0o1777)
    (own := tmp_path / "own").mkdir(0o700)
    planted = everybodys / "planted"
    planted.symlink_to("../own" if where == "relative" else own)
    os.chown(planted, 4242, -1, follow_symlinks=False)
    place = planted
    if where == "before":
        place = planted / "a" / "b"
    elif where == "in a target":
        place = tmp_path / "link"
        place.symlink_to(planted)
    if missing:
        own.rmdir()
    elif where == "before":
        (own / "a" / "b").mkdir(parents=True)
    said = (
        f"the link {planted}, on the way to the socket, belongs to uid 4242, who could replace it"
    )
    with pytest.raises(StartError, match=said) as caught, unix_listener(place / "timing.sock"):
        pass
    assert "choose a --socket that only directories of your own and of root lead to" in str(
        caught.value
    )
    assert own.exists() != missing
    assert not list(tmp_path.rglob("timing.sock"))


@needs_root
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_directory_of_another_user_on_the_way_is_refused(tmp_path: Path, mode: int) -> None:
    """Its owner could put another one in the place of that in it, sticky or not; nothing is made
    in it."""
    (theirs := tmp_path / "theirs").mkdir()
    theirs.chmod(mode)
    os.chown(theirs, 4242, -1)
    said = rf"the directory {theirs}, on the way .* uid 4242, who could replace 'own' in it"
    with pytest.raises(StartError, match=said) as caught, unix_listener(theirs / "own/timing.sock"):
        pass
    assert str(caught.value).endswith(", or run the sidecar as that user")
    assert list(theirs.iterdir()) == []
    (theirs / "own").mkdir(0o700)
    with pytest.raises(StartError, match=said), unix_listener(theirs / "own" / "timing.sock"):
        pass


def test_links_of_ones_own_are_followed(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One after the other, up and down, absolute or not; a circle of them is an error."""
    (place := tmp_path / "a" / "b").mkdir(parents=True)
    place.chmod(0o700)
    (tmp_path / "one").symlink_to("a/../two")
    (tmp_path / "two").symlink_to(tmp_path / "a")
    with unix_listener(tmp_path / "one" / "b" / ".." / "b" / "timing.sock"):
        assert (place / "timing.sock").is_socket()
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(StartError, match="Too many levels"), unix_listener(tmp_path / "round/s"):
        pass
    assert caplog.messages == []


@pytest.mark.parametrize("mode", [0o777, 0o2777, 0o770])
def test_directory_on_the_way_that_others_may_write_to_is_pointed_out(
    tmp_path: Path, mode: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, with what could happen: a volume that containers share is like that, and whether it
    has other users is not for the sidecar to know."""
    (volume := tmp_path / "volume").mkdir()
    volume.chmod(mode)
    place = volume / "own"
    with unix_listener(place / "timing.sock") as listener:
        assert place.stat().st_mode & 0o777 == 0o700
        (message,) = caplog.messages
        assert f"other users may write to {volume} (mode {mode:04o}), on the way" in message
        assert f"in the place of the one that leads to {place}; if there are other" in message
        assert "or chmod +t it" in message
        caplog.clear()
        (place / "timing.sock").unlink()
        listener.restore()
        assert len(caplog.messages) == 1  # that it is put back
    caplog.clear()
    volume.chmod(mode | stat.S_ISVTX)
    with unix_listener(place / "timing.sock"):
        assert caplog.messages == []


def test_directory_that_is_exchanged_meanwhile_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was checked is one directory, and the path leads to another one by the time that the
    socket is made: nobody is listened to there."""
    place, other, link = (tmp_path / name for name in ("place", "other", "link"))
    place.mkdir()
    other.mkdir()
    link.symlink_to(place)
    bind = listening._bind

    def exchange(path: Path, mode: int) -> socket.socket:
        link.unlink()
        link.symlink_to(other)
        return bind(path, mode)

    monkeypatch.setattr(listening, "_bind", exchange)
    with (
        pytest.raises(StartError, match=f"cannot listen on {link}"),
        unix_listener(link / "timing.sock"),
    ):
        pass


def test_parent_that_is_a_file_is_named(tmp_path: Path) -> None:
    """No directory can be made there; the error says where."""
    (tmp_path / "file").write_text("x")
    path = tmp_path / "file" / "timing.sock"
    with pytest.raises(StartError, match=f"cannot listen on {path}: "), unix_listener(path):
        pass
